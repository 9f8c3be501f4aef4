package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/domain"
	"github.com/kandev/plugin-host/hostsvc/journal"
	"github.com/kandev/plugin-host/hostsvc/legacy"
	"github.com/kandev/plugin-host/hostsvc/store"
)

// RunPluginData runs the tests of what plugins keep with the Host.
func RunPluginData(t *testing.T, fresh func(t testing.TB) Database) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Database)
	}{
		{"StateIsWhatWasWritten", testState},
		{"StateKeepsEveryValue", testStateValues},
		{"StateListIsBounded", testStateList},
		{"StateCountsWhatIsKept", testStateUsage},
		{"SecretsAreWhatWasWritten", testSecrets},
		{"SecretsAreWalkedAndReplaced", testSecretPages},
		{"I13_UninstallPurges", testPurge},
		{"I13_UninstallPurgesUnderLoad", testPurgeUnderLoad},
		{"I13_PurgeOfAFullInstallation", testPurgeFull},
		{"I6_AdoptionPurges", testAdoptionPurges},
		{"KeepingNamesWhoKeeps", testKeeping},
		{"WritesCommitWithTheirReceipts", testOwnReceipts},
		{"ReceiptsOfWritesOutliveTheirRetention", testOwnReceiptsRetention},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, fresh(t)) })
	}
}

func always(legacy.StateWrite) error { return nil }

func alwaysSecret(int) error { return nil }

// own is a receipt of a write of the installation's own.
func own(installationID string) journal.Receipt {
	return journal.Receipt{
		AuditID: uuid.NewString(), InstallationID: installationID, Method: "SetState", Capability: "state",
		Result: contract.StateApplied, At: time.Date(2026, 1, 1, 0, 0, 0, 1, time.UTC),
	}
}

// allowed allows a write.
func allowed() error { return nil }

func stateKey(installation, scope, scopeID, key string) legacy.StateKey {
	return legacy.StateKey{InstallationID: installation, Scope: scope, ScopeID: scopeID, Key: key}
}

func (w *world) putState(key legacy.StateKey, value domain.Object) {
	w.t.Helper()
	w.must(w.PutState(w.t.Context(), domain.PluginState{
		InstallationID: key.InstallationID, Scope: key.Scope, ScopeID: key.ScopeID, Key: key.Key, Value: value, UpdatedAt: w.now(),
	}, own(key.InstallationID), always))
}

// testState compares the store with a map, whatever is written and removed.
func testState(t *testing.T, d Database) {
	w := open(t, d)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		model := map[legacy.StateKey]domain.PluginState{}
		draw := func(rt *rapid.T) legacy.StateKey {
			return stateKey(
				fmt.Sprintf("i%d-%d", round, rapid.IntRange(0, 1).Draw(rt, "installation")),
				rapid.SampledFrom([]string{"instance", "task", "any text: ü"}).Draw(rt, "scope"),
				rapid.SampledFrom([]string{"", "t-1"}).Draw(rt, "scope ID"),
				rapid.SampledFrom([]string{"", "a", "B", "ä", "Z"}).Draw(rt, "key"))
		}
		check := func(err error) {
			if err != nil {
				rt.Fatal(err)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(rt *rapid.T) {
				key := draw(rt)
				entry := domain.PluginState{
					InstallationID: key.InstallationID, Scope: key.Scope, ScopeID: key.ScopeID, Key: key.Key,
					Value:     domain.Object{"n": float64(rapid.IntRange(0, 9).Draw(rt, "value"))},
					UpdatedAt: w.now().Add(time.Duration(rapid.IntRange(0, 1e9).Draw(rt, "time"))),
				}
				check(w.PutState(context.Background(), entry, own(entry.InstallationID), always))
				model[key] = entry
			},
			"delete": func(rt *rapid.T) {
				key := draw(rt)
				check(w.DeleteState(context.Background(), key, own(key.InstallationID), allowed))
				delete(model, key)
			},
			"get": func(rt *rapid.T) {
				key := draw(rt)
				got, found, err := w.State(context.Background(), key)
				check(err)
				want, has := model[key]
				if found != has || !reflect.DeepEqual(got, want) {
					rt.Errorf("%+v is %+v, %t; want %+v", key, got, found, want)
				}
			},
			"list": func(rt *rapid.T) {
				of := draw(rt)
				got, complete, err := w.States(context.Background(), of.InstallationID, of.Scope, of.ScopeID, 1<<20)
				check(err)
				var want []domain.PluginState
				for _, entry := range model {
					if entry.InstallationID == of.InstallationID && entry.Scope == of.Scope && entry.ScopeID == of.ScopeID {
						want = append(want, entry)
					}
				}
				slices.SortFunc(want, func(a, b domain.PluginState) int { return strings.Compare(a.Key, b.Key) })
				if !complete || !reflect.DeepEqual(got, want) {
					rt.Errorf("%+v lists %+v, want %+v", of, got, want)
				}
			},
		})
	})
}

func testStateValues(t *testing.T, d Database) {
	w := open(t, d)
	for n, value := range []domain.Object{
		nil, {}, {"": ""}, {"null": nil, "true": true, "text": "ä\x00\u2028</script>", "big": 1e300, "small": -0.5},
		{"deep": map[string]any{"list": []any{map[string]any{"x": []any{}}, "y", nil, 1.0}}},
	} {
		key := stateKey(installation, "instance", "", fmt.Sprint(n))
		w.putState(key, value)
		got, found, err := w.State(t.Context(), key)
		w.must(err)
		want := value
		if want == nil {
			want = domain.Object{}
		}
		if !found || !reflect.DeepEqual(got.Value, want) || !got.UpdatedAt.Equal(w.now()) {
			t.Errorf("%#v is kept as %#v of %v", value, got.Value, got.UpdatedAt)
		}
	}
	err := w.PutState(t.Context(), domain.PluginState{InstallationID: installation, Key: "f", Value: domain.Object{"f": func() {}}}, own(installation), always)
	if err == nil {
		t.Error("what is no JSON was written")
	}
	// The longest names that there may be fit the index of every database.
	longest := stateKey(installation, noise(legacy.MaxStateScopeBytes), noise(legacy.MaxStateNameBytes), noise(legacy.MaxStateNameBytes))
	w.putState(longest, domain.Object{"a": "b"})
	if _, found, err := w.State(t.Context(), longest); !found || err != nil {
		t.Errorf("an entry of the longest names is found: %t, %v", found, err)
	}
}

// noise is a text that doesn't compress.
func noise(length int) string {
	var b strings.Builder
	for n := uint32(2463534242); b.Len() < length; {
		n ^= n << 13
		n ^= n >> 17
		n ^= n << 5
		b.WriteByte(33 + byte(n%90))
	}
	return b.String()
}

func testStateList(t *testing.T, d Database) {
	w := open(t, d)
	value := domain.Object{"v": strings.Repeat("x", 100)}
	for n := range 10 {
		w.putState(stateKey(installation, "instance", "", fmt.Sprint(n)), value)
	}
	const each = int64(len("instance") + 1 + len(`{"v":""}`) + 100)
	entries, complete, err := w.States(t.Context(), installation, "instance", "", int(10*each))
	w.must(err)
	if len(entries) != 10 || !complete {
		t.Errorf("%d entries, complete: %t", len(entries), complete)
	}
	entries, complete, err = w.States(t.Context(), installation, "instance", "", int(10*each)-1)
	w.must(err)
	if len(entries) != 0 || complete {
		t.Errorf("of a longer list there are %d entries, complete: %t", len(entries), complete)
	}
}

func testStateUsage(t *testing.T, d Database) {
	w := open(t, d)
	var last legacy.StateWrite
	put := func(key string, length int, allow error) error {
		return w.PutState(t.Context(), domain.PluginState{
			InstallationID: installation, Scope: "s", ScopeID: "i", Key: key, Value: domain.Object{"v": strings.Repeat("x", length)},
		}, own(installation), func(write legacy.StateWrite) error { last = write; return allow })
	}
	const frame = len(`{"v":""}`)
	no := errors.New("no")
	for _, step := range []struct {
		do   func() error
		want error
		says legacy.StateWrite
	}{
		{func() error { return put("a", 10, nil) }, nil, legacy.StateWrite{ValueBytes: frame + 10, Entries: 1, Bytes: 3 + int64(frame) + 10}},
		{func() error { return put("b", 20, nil) }, nil, legacy.StateWrite{ValueBytes: frame + 20, Entries: 2, Bytes: 6 + 2*int64(frame) + 30}},
		{func() error { return put("a", 5, nil) }, nil, legacy.StateWrite{ValueBytes: frame + 5, Entries: 2, Bytes: 6 + 2*int64(frame) + 25}},
		{func() error { return put("a", 1000, no) }, no, legacy.StateWrite{ValueBytes: frame + 1000, Entries: 2, Bytes: 6 + 2*int64(frame) + 1020}},
		{func() error { return put("c", 7, no) }, no, legacy.StateWrite{ValueBytes: frame + 7, Entries: 3, Bytes: 9 + 3*int64(frame) + 32}},
		{func() error {
			return errors.Join(w.DeleteState(t.Context(), stateKey(installation, "s", "i", "b"), own(installation), allowed),
				w.DeleteState(t.Context(), stateKey(installation, "s", "i", "b"), own(installation), allowed), put("d", 0, nil))
		}, nil, legacy.StateWrite{ValueBytes: frame, Entries: 2, Bytes: 6 + 2*int64(frame) + 5}},
		{func() error {
			return w.DeleteState(t.Context(), stateKey(installation, "s", "i", "a"), own(installation), func() error { return no })
		}, no, legacy.StateWrite{ValueBytes: frame, Entries: 2, Bytes: 6 + 2*int64(frame) + 5}},
	} {
		if err := step.do(); !errors.Is(err, step.want) || last != step.says {
			t.Errorf("a write comes to %+v, %v; want %+v, %v", last, err, step.says, step.want)
		}
	}
	if entry, _, err := w.State(t.Context(), stateKey(installation, "s", "i", "a")); err != nil || len(entry.Value.Text("v")) != 5 {
		t.Errorf("a refused write left %+v, %v", entry, err)
	}
}

func testSecrets(t *testing.T, d Database) {
	w := open(t, d)
	put := func(installation, key, sealed string, want int) {
		t.Helper()
		w.must(w.PutSecret(t.Context(), legacy.Secret{InstallationID: installation, Key: key, Sealed: []byte(sealed), UpdatedAt: w.now()},
			own(installation), func(kept int) error {
				if kept != want {
					t.Errorf("with %s it keeps %d secrets, want %d", key, kept, want)
				}
				return nil
			}))
	}
	wants := func(installation, key, sealed string) {
		t.Helper()
		got, found, err := w.Secret(t.Context(), installation, key)
		w.must(err)
		if found != (sealed != "") || string(got.Sealed) != sealed || found && (got.Key != key || got.InstallationID != installation || !got.UpdatedAt.Equal(w.now())) {
			t.Errorf("%s of %s is %+v, want %q", key, installation, got, sealed)
		}
	}
	wants("a", "k", "")
	put("a", "k", "\x00\xff1", 1)
	put("a", "l", "2", 2)
	put("b", "k", "3", 1)
	put("a", "k", "4", 2)
	wants("a", "k", "4")
	wants("b", "k", "3")
	no := errors.New("no")
	w.wantErr("a removal that isn't allowed", w.DeleteSecret(t.Context(), "a", "k", own("a"), func() error { return no }), no)
	wants("a", "k", "4")
	w.must(w.DeleteSecret(t.Context(), "a", "k", own("a"), allowed))
	w.must(w.DeleteSecret(t.Context(), "a", "k", own("a"), allowed))
	wants("a", "k", "")
	wants("a", "l", "2")
	wants("b", "k", "3")
	w.wantErr("a write that isn't allowed", w.PutSecret(t.Context(), legacy.Secret{InstallationID: "a", Key: "k", Sealed: []byte("5")},
		own("a"), func(int) error { return no }), no)
	wants("a", "k", "")
}

func testSecretPages(t *testing.T, d Database) {
	w := open(t, d)
	want := map[string]string{}
	for n := range 7 {
		secret := legacy.Secret{InstallationID: fmt.Sprintf("i%d", n/3), Key: fmt.Sprint(n % 3), Sealed: []byte{byte(n)}}
		w.must(w.PutSecret(t.Context(), secret, own(secret.InstallationID), alwaysSecret))
		want[secret.InstallationID+"/"+secret.Key] = string(secret.Sealed)
	}
	got := map[string]string{}
	var last legacy.Secret
	for pages := 1; ; pages++ {
		page, err := w.SecretsAfter(t.Context(), last.InstallationID, last.Key, 3)
		w.must(err)
		for _, secret := range page {
			got[secret.InstallationID+"/"+secret.Key] = string(secret.Sealed)
			last = secret
		}
		if len(page) < 3 {
			if pages != 3 {
				t.Errorf("%d pages", pages)
			}
			break
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("the pages have %q, want %q", got, want)
	}
	was := legacy.Secret{InstallationID: "i0", Key: "1", Sealed: []byte{1}}
	w.must(w.ReplaceSecret(t.Context(), was, []byte("anew")))
	w.must(w.ReplaceSecret(t.Context(), was, []byte("too late")))
	if now, _, err := w.Secret(t.Context(), "i0", "1"); err != nil || string(now.Sealed) != "anew" {
		t.Errorf("the secret is %q, %v", now.Sealed, err)
	}
}

// keptRows is how many rows of an installation there are of what plugins keep.
func (w *world) keptRows(d Database, installation string) int {
	w.t.Helper()
	n := 0
	engine := d.Open(w.t)
	for _, table := range []string{"plugin_state", "plugin_secrets", "plugin_usage"} {
		w.must(engine.Query(w.t.Context(), `SELECT CAST(count(*) AS bigint) FROM `+table+` WHERE installation_id = $1`,
			func(r store.Row) error { n += int(r.Int(0)); return nil }, installation))
	}
	w.must(engine.Close())
	return n
}

func testPurge(t *testing.T, d Database) {
	w := open(t, d)
	ctx := t.Context()
	old, err := w.RecordInstallation(ctx, "uid-1", "standup")
	w.must(err)
	for _, id := range []string{old, "another"} {
		w.putState(stateKey(id, "instance", "", "k"), domain.Object{"a": "b"})
		w.must(w.PutSecret(ctx, legacy.Secret{InstallationID: id, Key: "k", Sealed: []byte("s")}, own(id), alwaysSecret))
	}
	w.must(w.Tombstone(ctx, old))
	w.must(w.Tombstone(ctx, old))
	w.wantErr("a write after the uninstall", w.PutState(ctx, domain.PluginState{InstallationID: old, Key: "k"}, own(old), always), legacy.ErrUninstalled)
	w.wantErr("a secret after the uninstall", w.PutSecret(ctx, legacy.Secret{InstallationID: old, Key: "k"}, own(old), alwaysSecret), legacy.ErrUninstalled)
	w.wantErr("a removal after the uninstall", w.DeleteState(ctx, stateKey(old, "instance", "", "k"), own(old), allowed), legacy.ErrUninstalled)
	w.wantErr("a secret's removal after it", w.DeleteSecret(ctx, old, "k", own(old), allowed), legacy.ErrUninstalled)
	// The same plugin, installed again.
	anew, err := w.RecordInstallation(ctx, "uid-2", "standup")
	w.must(err)
	if anew == old {
		t.Fatalf("the reinstall has the ID of before, %s", anew)
	}
	for id, want := range map[string]bool{old: false, anew: false, "another": true} {
		_, state, err := w.State(ctx, stateKey(id, "instance", "", "k"))
		w.must(err)
		_, secret, err := w.Secret(ctx, id, "k")
		w.must(err)
		if state != want || secret != want {
			t.Errorf("%s has state: %t, secrets: %t; want %t", id, state, secret, want)
		}
	}
	w.close()
	for id, want := range map[string]int{old: 0, "another": 3} {
		if n := w.keptRows(d, id); n != want {
			t.Errorf("%s has %d rows, want %d", id, n, want)
		}
	}
}

// testPurgeUnderLoad: writes that come in while the installation goes leave nothing.
func testPurgeUnderLoad(t *testing.T, d Database) {
	w := open(t, d)
	const writers = 16
	var wrote sync.WaitGroup
	begun := make(chan struct{}, writers)
	for n := range writers {
		wrote.Go(func() {
			for i := 0; ; i++ {
				key := fmt.Sprintf("%d-%d", n, i)
				err := w.PutState(context.Background(), domain.PluginState{InstallationID: installation, Key: key}, own(installation), always)
				if err == nil {
					err = w.PutSecret(context.Background(), legacy.Secret{InstallationID: installation, Key: key, Sealed: []byte{1}}, own(installation), alwaysSecret)
				}
				if errors.Is(err, legacy.ErrUninstalled) {
					return
				}
				if err != nil {
					t.Errorf("write: %v", err)
					return
				}
				if i == 0 {
					begun <- struct{}{}
				}
			}
		})
	}
	for range writers {
		<-begun
	}
	w.must(w.Tombstone(t.Context(), installation))
	wrote.Wait()
	w.close()
	if n := w.keptRows(d, installation); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// testPurgeFull: an installation that keeps all that it may goes in one short
// transaction.
func testPurgeFull(t *testing.T, d Database) {
	w := open(t, d)
	value := domain.Object{"v": noise(legacy.MaxStateBytes/2000 - 100)}
	var wrote sync.WaitGroup
	for n := range 8 {
		wrote.Go(func() {
			for i := range 250 {
				entry := domain.PluginState{InstallationID: installation, Scope: "task", Key: fmt.Sprintf("%d-%d", n, i), Value: value}
				if err := w.PutState(context.Background(), entry, own(entry.InstallationID), always); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wrote.Wait()
	begun := time.Now()
	w.must(w.Tombstone(t.Context(), installation))
	took := time.Since(begun)
	t.Logf("an uninstall that purges %d MiB took %v", legacy.MaxStateBytes>>20, took)
	if took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	w.close()
	if n := w.keptRows(d, installation); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// testAdoptionPurges: another cluster's secrets are not this one's.
func testAdoptionPurges(t *testing.T, d Database) {
	w := open(t, d)
	w.must(w.Claim(t.Context(), "cluster-1", ""))
	id, err := w.RecordInstallation(t.Context(), "uid-1", "standup")
	w.must(err)
	w.must(w.PutSecret(t.Context(), legacy.Secret{InstallationID: id, Key: "k", Sealed: []byte("s")}, own(id), alwaysSecret))
	w.putState(stateKey(id, "instance", "", "k"), nil)
	w.must(w.Claim(t.Context(), "cluster-2", "cluster-1"))
	w.close()
	if n := w.keptRows(d, id); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

func testKeeping(t *testing.T, d Database) {
	w := open(t, d)
	ids := map[string]string{}
	for _, uid := range []string{"state", "secrets", "nothing", "gone"} {
		id, err := w.RecordInstallation(t.Context(), uid, uid)
		w.must(err)
		ids[uid] = id
	}
	w.putState(stateKey(ids["state"], "instance", "", "k"), nil)
	w.putState(stateKey(ids["gone"], "instance", "", "k"), nil)
	w.must(w.PutSecret(t.Context(), legacy.Secret{InstallationID: ids["secrets"], Key: "k", Sealed: []byte{1}}, own(ids["secrets"]), alwaysSecret))
	w.must(w.Tombstone(t.Context(), ids["gone"]))
	keeping, err := w.Keeping(t.Context())
	w.must(err)
	if want := map[string]string{"state": ids["state"], "secrets": ids["secrets"]}; !maps.Equal(keeping, want) {
		t.Errorf("%v keep something, want %v", keeping, want)
	}
}

// owned is the receipts of an installation's own writes, by their audit IDs. Each chain
// is whole.
func (w *world) owned(installationID string) map[string]journal.Receipt {
	w.t.Helper()
	chains, err := w.Chains(w.t.Context())
	w.must(err)
	receipts := map[string]journal.Receipt{}
	for _, chain := range chains {
		if !strings.HasPrefix(chain.Name, "writes/"+installationID+"/") {
			continue
		}
		_, err := journal.VerifyReceipts(w.t.Context(), w, chain)
		w.must(err)
		segments, err := w.Segments(w.t.Context(), chain.Name, 0, 1000)
		w.must(err)
		for _, segment := range segments {
			var receipt journal.Receipt
			w.must(json.Unmarshal(segment.Body, &receipt))
			receipts[receipt.AuditID] = receipt
		}
	}
	return receipts
}

// testOwnReceipts: whichever statement of a write fails, and however its COMMIT ends,
// there are the write and its receipt, or neither.
func testOwnReceipts(t *testing.T, d Database) {
	engine := &faulty{Engine: d.Open(t)}
	w := openOn(t, engine)
	ctx := t.Context()
	key := func(round int) legacy.StateKey { return stateKey(installation, "s", "", fmt.Sprint(round)) }
	entry := func(round int) domain.PluginState {
		return domain.PluginState{InstallationID: installation, Scope: "s", Key: fmt.Sprint(round), Value: domain.Object{}}
	}
	secret := func(round int) legacy.Secret {
		return legacy.Secret{InstallationID: installation, Key: fmt.Sprint(round), Sealed: []byte("s")}
	}
	hasState := func(round int) bool {
		_, found, err := w.State(ctx, key(round))
		w.must(err)
		return found
	}
	hasSecret := func(round int) bool {
		_, found, err := w.Secret(ctx, installation, fmt.Sprint(round))
		w.must(err)
		return found
	}
	round, tried := 0, 0
	for _, c := range []struct {
		name    string
		prepare func(round int) error
		write   func(round int, receipt journal.Receipt) error
		written func(round int) bool
	}{
		{
			"SetState", nil,
			func(n int, receipt journal.Receipt) error { return w.PutState(ctx, entry(n), receipt, always) }, hasState,
		},
		{
			"DeleteState", func(n int) error { return w.PutState(ctx, entry(n), own(installation), always) },
			func(n int, receipt journal.Receipt) error { return w.DeleteState(ctx, key(n), receipt, allowed) },
			func(n int) bool { return !hasState(n) },
		},
		{
			"SetSecret", nil,
			func(n int, receipt journal.Receipt) error { return w.PutSecret(ctx, secret(n), receipt, alwaysSecret) }, hasSecret,
		},
		{
			"DeleteSecret", func(n int) error { return w.PutSecret(ctx, secret(n), own(installation), alwaysSecret) },
			func(n int, receipt journal.Receipt) error {
				return w.DeleteSecret(ctx, installation, fmt.Sprint(n), receipt, allowed)
			},
			func(n int) bool { return !hasSecret(n) },
		},
	} {
		try := func(what string, exec func(int) fault, commit func() fault) (err error) {
			t.Helper()
			round++
			tried++
			if c.prepare != nil {
				w.must(c.prepare(round))
			}
			receipt := own(installation)
			engine.arm(exec, commit)
			err = c.write(round, receipt)
			engine.arm(nil, nil)
			_, recorded := w.owned(installation)[receipt.AuditID]
			if written := c.written(round); written != recorded || err == nil && !written {
				t.Errorf("%s, %s answers %v; it is written: %t, recorded: %t", c.name, what, err, written, recorded)
			}
			return err
		}
		w.must(try("nothing fails", nil, nil))
		for _, kind := range []fault{fails, ends} {
			for at, fired := 1, true; fired; at++ {
				fired = false
				err := try(fmt.Sprintf("fault %d at statement %d", kind, at), func(n int) fault {
					if n == at {
						fired = true
						return kind
					}
					return works
				}, nil)
				if fired && err == nil {
					t.Errorf("%s succeeds beside a fault at statement %d", c.name, at)
				}
			}
		}
		for _, kind := range []fault{undone, uncertain} {
			if err := try(fmt.Sprintf("a COMMIT that ends with %d", kind), nil, func() fault { return kind }); err == nil {
				t.Errorf("%s succeeds where its COMMIT doesn't", c.name)
			}
		}
		// Without a receipt of just that write there is none.
		for name, change := range map[string]func(*journal.Receipt){
			"no audit ID":      func(r *journal.Receipt) { r.AuditID = "" },
			"somebody else's":  func(r *journal.Receipt) { r.InstallationID = "another" },
			"that of a denial": func(r *journal.Receipt) { r.Result = contract.StateDenied },
		} {
			round++
			if c.prepare != nil {
				w.must(c.prepare(round))
			}
			receipt := own(installation)
			change(&receipt)
			if err := c.write(round, receipt); err == nil || c.written(round) {
				t.Errorf("%s, with %s, answers %v", c.name, name, err)
			}
		}
	}
	if tried < 40 {
		t.Errorf("only %d writes were tried", tried)
	}
	// A write that isn't allowed leaves none, and many at once make one chain.
	no, before := errors.New("no"), len(w.owned(installation))
	w.wantErr("a write that isn't allowed", w.PutState(ctx, entry(0), own(installation), func(legacy.StateWrite) error { return no }), no)
	var wrote sync.WaitGroup
	for n := range 32 {
		wrote.Go(func() {
			if err := w.PutState(context.Background(), entry(n), own(installation), always); err != nil {
				t.Error(err)
			}
		})
	}
	wrote.Wait()
	if n := len(w.owned(installation)) - before; n != 32 {
		t.Errorf("32 writes left %d receipts", n)
	}
}

// testOwnReceiptsRetention: what retention takes is proven, also of a chain that is gone
// whole before its installation writes again.
func testOwnReceiptsRetention(t *testing.T, d Database) {
	w := open(t, d)
	put := func() string {
		t.Helper()
		receipt := own(installation)
		w.must(w.PutState(t.Context(), domain.PluginState{InstallationID: installation, Key: "k"}, receipt, always))
		return receipt.AuditID
	}
	put()
	put()
	w.root()
	w.clock.advance(time.Hour)
	if removed, err := w.PruneReceipts(t.Context(), w.clock.Now()); removed != 2 || err != nil {
		t.Fatalf("%d receipts are removed: %v", removed, err)
	}
	if left := w.owned(installation); len(left) != 0 {
		t.Errorf("left are %v", left)
	}
	first := put()
	second := put()
	w.root()
	if left := w.owned(installation); len(left) != 2 || left[first].AuditID == "" || left[second].AuditID == "" {
		t.Errorf("left are %v", left)
	}
	_, err := journal.VerifyRoots(t.Context(), w)
	w.must(err)
}
