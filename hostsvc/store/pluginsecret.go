package store

import (
	"context"

	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/legacy"
)

const secretColumns = `installation_id, key, sealed, updated_at`

func scanSecret(r Row) legacy.Secret {
	return legacy.Secret{InstallationID: r.Text(0), Key: r.Text(1), Sealed: r.Bytes(2), UpdatedAt: nanoTime(r, 3)}
}

// Secret implements legacy.SecretStore.
func (s *Store) Secret(ctx context.Context, installationID, key string) (secret legacy.Secret, found bool, err error) {
	err = failed("read a secret", s.engine.Query(ctx,
		`SELECT `+secretColumns+` FROM plugin_secrets WHERE installation_id = $1 AND key = $2`, func(r Row) error {
			secret, found = scanSecret(r), true
			return nil
		}, installationID, key))
	return secret, found, err
}

// PutSecret implements legacy.SecretStore.
func (s *Store) PutSecret(ctx context.Context, secret legacy.Secret, receipt journal.Receipt, allow func(kept int) error) error {
	return s.run(ctx, installationLock(secret.InstallationID), false, func(t *tx) error {
		dead, others := false, 0
		err := t.query("read what an installation keeps", `SELECT CAST(CASE WHEN EXISTS (`+selectTombstone+`) THEN 1 ELSE 0 END AS bigint),
			(SELECT count(*) FROM plugin_secrets WHERE installation_id = $1 AND key <> $2)`, func(r Row) error {
			dead, others = r.Int(0) != 0, int(r.Int(1))
			return nil
		}, secret.InstallationID, secret.Key)
		switch {
		case err != nil:
			return err
		case dead:
			return legacy.ErrUninstalled
		}
		if err := allow(others + 1); err != nil {
			return err
		}
		_, err = t.exec("write a secret", `INSERT INTO plugin_secrets (`+secretColumns+`) VALUES ($1, $2, $3, $4)
			ON CONFLICT (installation_id, key) DO UPDATE SET sealed = excluded.sealed, updated_at = excluded.updated_at`,
			secret.InstallationID, secret.Key, secret.Sealed, secret.UpdatedAt.UnixNano())
		if err != nil {
			return err
		}
		return t.recordOwn(secret.InstallationID, receipt)
	})
}

// DeleteSecret implements legacy.SecretStore.
func (s *Store) DeleteSecret(ctx context.Context, installationID, key string, receipt journal.Receipt, allow func() error) error {
	return s.run(ctx, installationLock(installationID), false, func(t *tx) error {
		dead, err := tombstoned(func(row func(Row) error, args ...any) error {
			return t.query("look up a tombstone", selectTombstone, row, args...)
		}, installationID)
		if err != nil {
			return err
		}
		if dead {
			return legacy.ErrUninstalled
		}
		if err := allow(); err != nil {
			return err
		}
		_, err = t.exec("remove a secret", `DELETE FROM plugin_secrets WHERE installation_id = $1 AND key = $2`, installationID, key)
		if err != nil {
			return err
		}
		return t.recordOwn(installationID, receipt)
	})
}

// SecretsAfter implements legacy.SecretStore.
func (s *Store) SecretsAfter(ctx context.Context, installationID, key string, limit int) ([]legacy.Secret, error) {
	var page []legacy.Secret
	err := failed("list the secrets", s.engine.Query(ctx, `SELECT `+secretColumns+` FROM plugin_secrets
		WHERE (installation_id, key) > ($1, $2) ORDER BY installation_id, key LIMIT $3`, func(r Row) error {
		page = append(page, scanSecret(r))
		return nil
	}, installationID, key, int64(limit)))
	return page, err
}

// ReplaceSecret implements legacy.SecretStore.
func (s *Store) ReplaceSecret(ctx context.Context, was legacy.Secret, sealed []byte) error {
	return s.run(ctx, installationLock(was.InstallationID), false, func(t *tx) error {
		_, err := t.exec("seal a secret anew", `UPDATE plugin_secrets SET sealed = $3
			WHERE installation_id = $1 AND key = $2 AND sealed = $4`, was.InstallationID, was.Key, sealed, was.Sealed)
		return err
	})
}
