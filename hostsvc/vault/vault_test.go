package vault_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/kandev/plugin-host/hostsvc/vault"
)

func ringKey(n byte) []byte { return bytes.Repeat([]byte{n}, vault.KeySize) }

func newVault(t *testing.T, keys ...byte) *vault.Vault {
	t.Helper()
	var ring [][]byte
	for _, n := range keys {
		ring = append(ring, ringKey(n))
	}
	v, err := vault.New(ring...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestKeysOfARing(t *testing.T) {
	for name, c := range map[string]struct {
		ring [][]byte
		says string
	}{
		"none":  {nil, "no key"},
		"short": {[][]byte{ringKey(1), ringKey(2)[1:]}, "key 2 has 31 bytes"},
		"long":  {[][]byte{append(ringKey(1), 1)}, "key 1 has 33 bytes"},
		"twice": {[][]byte{ringKey(1), ringKey(2), ringKey(1)}, "key 3 is given twice"},
	} {
		if _, err := vault.New(c.ring...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// TestI14_SealedHoldsNoSecret, nor twice the same bytes, and opens for the name it
// was sealed for alone.
func TestI14_SealedHoldsNoSecret(t *testing.T) {
	v := newVault(t, 1)
	for _, value := range []string{"", "x", "a long secret of an operator"} {
		sealed := v.Seal("installation", "token", []byte(value))
		if value != "" && bytes.Contains(sealed, []byte(value)) {
			t.Errorf("%q is in what is sealed", value)
		}
		if bytes.Equal(sealed, v.Seal("installation", "token", []byte(value))) {
			t.Errorf("%q is sealed alike twice", value)
		}
		opened, err := v.Open("installation", "token", sealed)
		if err != nil || string(opened) != value {
			t.Errorf("%q opens as %q, %v", value, opened, err)
		}
		for _, other := range [][2]string{
			{"another", "token"}, {"installation", "other"}, {"", "token"}, {"installation", ""},
			{"installationt", "oken"}, {"installatio", "ntoken"}, {"token", "installation"},
		} {
			if opened, err := v.Open(other[0], other[1], sealed); !errors.Is(err, vault.ErrSealed) {
				t.Errorf("as %q it opens as %q, %v", other, opened, err)
			}
		}
	}
}

func TestAlteredByAnyBitDoesNotOpen(t *testing.T) {
	v := newVault(t, 1, 2)
	sealed := v.Seal("installation", "token", []byte("secret"))
	for i := range sealed {
		for bit := range 8 {
			altered := bytes.Clone(sealed)
			altered[i] ^= 1 << bit
			if opened, err := v.Open("installation", "token", altered); err == nil {
				t.Errorf("with bit %d of byte %d turned it opens as %q", bit, i, opened)
			}
		}
		if opened, err := v.Open("installation", "token", sealed[:i]); err == nil {
			t.Errorf("its first %d bytes open as %q", i, opened)
		}
	}
}

func TestRotation(t *testing.T) {
	before, both, swapped, after := newVault(t, 1), newVault(t, 1, 2), newVault(t, 2, 1), newVault(t, 2)
	old := before.Seal("i", "k", []byte("secret"))
	renewed := swapped.Seal("i", "k", []byte("secret"))
	for name, c := range map[string]struct {
		vault    *vault.Vault
		sealed   []byte
		old      bool
		expected error
	}{
		"old, before":    {before, old, false, nil},
		"old, both":      {both, old, false, nil},
		"old, swapped":   {swapped, old, true, nil},
		"old, after":     {after, old, true, vault.ErrKey},
		"renewed, both":  {both, renewed, true, nil},
		"renewed, swap":  {swapped, renewed, false, nil},
		"renewed, after": {after, renewed, false, nil},
		"nothing":        {after, nil, true, vault.ErrKey},
	} {
		opened, err := c.vault.Open("i", "k", c.sealed)
		if !errors.Is(err, c.expected) || err == nil && string(opened) != "secret" || c.vault.Old(c.sealed) != c.old {
			t.Errorf("%s: %q, %v, old: %t", name, opened, err, c.vault.Old(c.sealed))
		}
	}
}
