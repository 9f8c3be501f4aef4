package store

import (
	"strings"

	"github.com/kandev/plugin-host/hostsvc/domain"
)

var (
	repositoryNames = []string{
		"workspace_id", "id", "name", "default_branch", "source_type", "provider", "provider_repository_id", "provider_host",
		"provider_owner", "provider_name", "provider_scope", "remote_url", "created_at", "updated_at", "version",
	}
	repositoryColumns = strings.Join(repositoryNames[1:], ", ")
	repositoryTable   = newVersioned("repository", "repositories", repositoryNames, 2)
)

func scanRepository(r Row, workspaceID string) domain.Repository {
	return domain.Repository{
		ID: r.Text(0), WorkspaceID: workspaceID, Name: r.Text(1), DefaultBranch: r.Text(2), SourceType: r.Text(3),
		Provider: r.Text(4), ProviderRepositoryID: r.Text(5), ProviderHost: r.Text(6), ProviderOwner: r.Text(7),
		ProviderName: r.Text(8), ProviderScope: r.Text(9), RemoteURL: r.Text(10), CreatedAt: nanoTime(r, 11),
		UpdatedAt: nanoTime(r, 12), Version: domain.Version(r.Int(13)),
	}
}

func repositoryArgs(r domain.Repository) []any {
	return []any{
		r.WorkspaceID, r.ID, r.Name, r.DefaultBranch, r.SourceType, r.Provider, r.ProviderRepositoryID, r.ProviderHost,
		r.ProviderOwner, r.ProviderName, r.ProviderScope, r.RemoteURL, nanos(r.CreatedAt), nanos(r.UpdatedAt), int64(r.Version),
	}
}

// Repository implements legacy.RepositoryTx.
func (t *tx) Repository(id string) (repository domain.Repository, found bool, err error) {
	err = t.query("read a repository", `SELECT `+repositoryColumns+` FROM repositories WHERE workspace_id = $1 AND id = $2`,
		func(r Row) error { repository, found = scanRepository(r, t.workspace), true; return nil }, t.workspace, id)
	return repository, found, err
}

func (t *tx) insertRepository(r domain.Repository) error {
	if err := t.own("repository", r.ID, r.WorkspaceID, r.Version); err != nil {
		return err
	}
	return t.insertRow(repositoryTable, repositoryArgs(r))
}

// Repository implements SeedTx.
func (s seedTx) Repository(r domain.Repository) error {
	r.WorkspaceID, r.Version = s.tx.workspace, s.tx.Version()
	return s.tx.insertRepository(r)
}

// Repositories implements legacy.RepositorySnapshot.
func (s *snapshot) Repositories(workspaceID string, offset, limit int) (repositories []domain.Repository, err error) {
	err = s.query("list repositories", `SELECT `+repositoryColumns+` FROM repositories WHERE workspace_id = $1
		ORDER BY COALESCE(created_at, 0), id LIMIT $2 OFFSET $3`,
		func(r Row) error { repositories = append(repositories, scanRepository(r, workspaceID)); return nil },
		clean(workspaceID), int64(limit), int64(offset))
	return repositories, err
}
