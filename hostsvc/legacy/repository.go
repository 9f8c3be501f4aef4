package legacy

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/kandev/plugin-host/hostsvc/admission"
	"github.com/kandev/plugin-host/hostsvc/domain"
)

// RepositorySnapshot is what v1 reads of repositories.
type RepositorySnapshot interface {
	// Repositories lists the repositories of a workspace, the oldest first.
	Repositories(workspaceID string, offset, limit int) ([]domain.Repository, error)
}

// RepositoryTx is what v1 writers need of repositories.
type RepositoryTx interface {
	Repository(id string) (repository domain.Repository, found bool, err error)
}

// ListRepositories lists the repositories of a workspace. Of a repository's address
// only PublicRemoteURL may be shown.
func (h *Host) ListRepositories(ctx context.Context, _ Caller, workspaceID string, page Page) ([]domain.Repository, PageInfo, error) {
	return listed(ctx, h, "list repositories", page.window(), small[domain.Repository], func(s Snapshot, offset, limit int) ([]domain.Repository, error) {
		return s.Repositories(workspaceID, offset, limit)
	})
}

// TaskRepository says which repository a new task works on: one of the workspace, or
// one that it describes.
type TaskRepository struct {
	RepositoryID               string
	Remote                     *RemoteRepository
	BaseBranch, CheckoutBranch string
}

// RemoteRepository describes a repository at a provider.
type RemoteRepository struct {
	ProviderID, ProviderHost, OwnerOrProject, ProviderRepositoryID, Name, CloneURL string
}

// check refuses a repository that a task can't have. A descriptor is of a provider
// that the plugin brings, which no manifest can declare here: so every one is foreign.
func (r TaskRepository) check() error {
	switch {
	case r.RepositoryID != "" && r.Remote != nil:
		return fail(InvalidArgument, "repository_id and remote descriptor are mutually exclusive")
	case r.Remote != nil:
		if failure := r.Remote.check(); failure != nil {
			return failure
		}
		return admission.LegacyNotDeclared("repository_provider:" + r.Remote.ProviderID)
	case r.RepositoryID == "":
		return fail(InvalidArgument, "repository_id or remote descriptor is required")
	default:
		return nil
	}
}

func (r RemoteRepository) check() *Failure {
	for _, part := range []string{r.ProviderID, r.ProviderHost, r.OwnerOrProject, r.ProviderRepositoryID, r.Name, r.CloneURL} {
		if strings.TrimSpace(part) == "" {
			return fail(InvalidArgument, "remote repository descriptor is incomplete")
		}
	}
	clone, err := url.Parse(r.CloneURL)
	if err != nil || clone.Scheme != "https" || clone.User != nil || !strings.EqualFold(clone.Host, r.ProviderHost) ||
		clone.RawQuery != "" || clone.Fragment != "" {
		return fail(InvalidArgument, "remote repository clone_url must match its credential-free HTTPS provider origin")
	}
	return nil
}

// repositoriesOf makes the repositories of a new task. One that names none works on
// its parent's.
func (h *Host) repositoriesOf(tx Tx, asked []TaskRepository, parent *domain.Task) ([]domain.TaskRepository, error) {
	var repositories []domain.TaskRepository
	if len(asked) == 0 && parent != nil {
		for _, r := range parent.Repositories {
			r.ID = h.NewID()
			repositories = append(repositories, r)
		}
		return repositories, nil
	}
	for i, r := range asked {
		repository, found, err := tx.Repository(r.RepositoryID)
		if err != nil {
			return nil, fmt.Errorf("read repository %s: %w", r.RepositoryID, err)
		}
		if !found {
			return nil, fail(Unknown, "repository not found: %s", r.RepositoryID)
		}
		base := r.BaseBranch
		if base == "" {
			base = repository.DefaultBranch
		}
		repositories = append(repositories, domain.TaskRepository{
			ID: h.NewID(), RepositoryID: repository.ID, BaseBranch: base, CheckoutBranch: r.CheckoutBranch, Position: int32(i),
		})
	}
	return repositories, nil
}
