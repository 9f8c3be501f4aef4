package legacy

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/journal"
)

// The bounds of the secrets that one installation keeps.
const (
	// MaxSecretBytes bounds a value, in bytes.
	MaxSecretBytes = 64 << 10
	// MaxSecrets is how many it may keep.
	MaxSecrets = 256
)

// Secret is one secret of an installation, sealed by the vault.
type Secret struct {
	InstallationID string
	Key            string
	Sealed         []byte
	UpdatedAt      time.Time
}

// SecretStore keeps sealed secrets. What it keeps ends with the installation.
type SecretStore interface {
	// Secret returns one secret.
	Secret(ctx context.Context, installationID, key string) (secret Secret, found bool, err error)
	// PutSecret writes a secret together with its receipt, or what allow returns of how
	// many the installation would keep, and nothing. ErrUninstalled when the
	// installation was uninstalled.
	PutSecret(ctx context.Context, secret Secret, receipt journal.Receipt, allow func(kept int) error) error
	// DeleteSecret removes a secret and writes the receipt of that in one transaction,
	// or does what allow returns and nothing; one that isn't there is removed already.
	// ErrUninstalled when the installation was uninstalled.
	DeleteSecret(ctx context.Context, installationID, key string, receipt journal.Receipt, allow func() error) error
	// SecretsAfter lists at most limit secrets of all installations behind one, by
	// installation and key.
	SecretsAfter(ctx context.Context, installationID, key string, limit int) ([]Secret, error)
	// ReplaceSecret puts what is sealed anew in the place of what was, unless that
	// isn't there any more.
	ReplaceSecret(ctx context.Context, was Secret, sealed []byte) error
}

// Vault seals secrets. What was sealed for one installation and key opens for that
// one only.
type Vault interface {
	Seal(installationID, key string, value []byte) []byte
	Open(installationID, key string, sealed []byte) ([]byte, error)
	// Old tells whether what is sealed would be sealed by another key now.
	Old(sealed []byte) bool
}

// errNoVault is the shipped text.
func errNoVault() *Failure { return fail(Unknown, "plugins: secret vault not configured") }

var secretKey = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,127}$`)

// checkSecret finds what keeps a secret from being asked for.
func (h *Host) checkSecret(key string) *Failure {
	switch {
	case h.Vault == nil:
		return errNoVault()
	case !secretKey.MatchString(key):
		return fail(InvalidArgument, "invalid secret key %q", key)
	}
	return nil
}

// GetSecret opens one of the caller's own secrets; one that isn't there is no
// failure.
func (h *Host) GetSecret(ctx context.Context, caller Caller, key string) (value string, found bool, err error) {
	if failure := h.checkSecret(key); failure != nil {
		return "", false, failure
	}
	secret, found, err := h.Secrets.Secret(ctx, caller.InstallationID, key)
	if err != nil || !found {
		return "", false, err
	}
	opened, err := h.Vault.Open(caller.InstallationID, key, secret.Sealed)
	if err != nil {
		return "", false, fmt.Errorf("open a secret of installation %s: %w", caller.InstallationID, err)
	}
	return string(opened), true, nil
}

// SetSecret seals one of the caller's own secrets, over the one that is there.
func (h *Host) SetSecret(ctx context.Context, caller Caller, key, value string) error {
	if failure := h.checkSecret(key); failure != nil {
		return failure
	}
	if len(value) > MaxSecretBytes {
		return fail(InvalidArgument, "value is longer than %d bytes", MaxSecretBytes)
	}
	err := h.Secrets.PutSecret(ctx, Secret{
		InstallationID: caller.InstallationID, Key: key, UpdatedAt: h.Now(),
		Sealed: h.Vault.Seal(caller.InstallationID, key, []byte(value)),
	}, h.receipt(caller, "SetSecret", contract.LegacySecrets), func(kept int) error {
		if err := caller.still(); err != nil {
			return err
		}
		if kept > MaxSecrets {
			return fail(ResourceExhausted, "this installation keeps %d secrets, which is all that it may", MaxSecrets)
		}
		return nil
	})
	return uninstalled(err)
}

// DeleteSecret removes one of the caller's own secrets. As shipped, it succeeds
// where there is none.
func (h *Host) DeleteSecret(ctx context.Context, caller Caller, key string) error {
	if failure := h.checkSecret(key); failure != nil {
		return failure
	}
	return uninstalled(h.Secrets.DeleteSecret(ctx, caller.InstallationID, key, h.receipt(caller, "DeleteSecret", contract.LegacySecrets), caller.still))
}

// sealedPage is how many secrets Reseal looks at together.
const sealedPage = 64

// Reseal seals anew, by the first key, what another one has sealed, so that the
// other one can go. It returns how many it has sealed, and how many no key opens;
// those are left as they are.
func Reseal(ctx context.Context, store SecretStore, vault Vault) (resealed, lost int, err error) {
	var last Secret
	for {
		page, err := store.SecretsAfter(ctx, last.InstallationID, last.Key, sealedPage)
		if err != nil {
			return resealed, lost, fmt.Errorf("list the secrets: %w", err)
		}
		for _, secret := range page {
			last = secret
			if !vault.Old(secret.Sealed) {
				continue
			}
			value, err := vault.Open(secret.InstallationID, secret.Key, secret.Sealed)
			if err != nil {
				lost++
				continue
			}
			sealed := vault.Seal(secret.InstallationID, secret.Key, value)
			if err := store.ReplaceSecret(ctx, secret, sealed); err != nil {
				return resealed, lost, fmt.Errorf("replace a secret: %w", err)
			}
			resealed++
		}
		if len(page) < sealedPage {
			return resealed, lost, nil
		}
	}
}
