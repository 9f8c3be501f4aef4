package identity

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/kandev/plugin-host/contract"
)

func encode(parts ...string) string {
	for i, part := range parts {
		parts[i] = base64.RawURLEncoding.EncodeToString([]byte(part))
	}
	return strings.Join(parts, ".")
}

const goodClaims = `{"aud":["x","` + contract.Audience + `"],"exp":1900000000,"iss":"i","sub":"system:serviceaccount:ns:sa",` +
	`"kubernetes.io":{"namespace":"ns","pod":{"name":"p","uid":"pu"},"serviceaccount":{"name":"sa","uid":"su"}}}`

func TestTokenClaims(t *testing.T) {
	header := `{"alg":"ES256"}`
	got, err := parseClaims(encode(header, goodClaims, "sig"))
	want := claims{
		account: Account{"ns", "sa"}, accountUID: "su", podName: "p", podUID: "pu", expires: time.Unix(1900000000, 0),
	}
	if err != nil || got != want {
		t.Fatalf("got %+v, %v; want %+v", got, err, want)
	}
	one := strings.Replace(goodClaims, `["x","`+contract.Audience+`"]`, `"`+contract.Audience+`"`, 1)
	if _, err := parseClaims(encode(header, one, "sig")); err != nil {
		t.Errorf("one audience as a text: %v", err)
	}

	without := func(old, replacement string) string {
		if !strings.Contains(goodClaims, old) {
			t.Fatalf("%q is not in the claims", old)
		}
		return encode(header, strings.Replace(goodClaims, old, replacement, 1), "sig")
	}
	for _, test := range []struct{ name, token, want string }{
		{"empty", "", "three parts"},
		{"two parts", encode(header, goodClaims), "three parts"},
		{"four parts", encode(header, goodClaims, "sig", "more"), "three parts"},
		{"empty signature", encode(header, goodClaims, ""), "three parts"},
		{"too long", encode(header, goodClaims, strings.Repeat("s", maxTokenBytes)), "longer than"},
		{"padded", encode(header, goodClaims, "sig") + "=", "base64url"},
		{"stray bits", encode(header, goodClaims) + ".AB", "base64url"},
		{"header no JSON", encode("{", goodClaims, "sig"), "header"},
		{"claims no JSON", encode(header, "{", "sig"), "claims"},
		{"claims with more behind", encode(header, goodClaims+"{}", "sig"), "claims"},
		{"claims no object", encode(header, "[]", "sig"), "claims"},
		{"audience a number", without(`["x","`+contract.Audience+`"]`, "7"), "claims"},
		{"no audience", without(`"aud":["x","`+contract.Audience+`"],`, ""), "another audience"},
		{"longer audience", without(contract.Audience, contract.Audience+".x"), "another audience"},
		{"user", without("system:serviceaccount:ns:sa", "alice"), "subject"},
		{"subject of three", without("system:serviceaccount:ns:sa", "system:serviceaccount:ns:sa:x"), "subject"},
		{"subject without name", without("system:serviceaccount:ns:sa", "system:serviceaccount:ns:"), "subject"},
		{"subject of another namespace", without("system:serviceaccount:ns:sa", "system:serviceaccount:other:sa"), "not bound to its ServiceAccount"},
		{"account without UID", without(`"uid":"su"`, `"uid":""`), "not bound to its ServiceAccount"},
		{"no pod", without(`"pod":{"name":"p","uid":"pu"},`, ""), "not bound to a pod"},
		{"pod without UID", without(`"uid":"pu"`, `"uid":""`), "not bound to a pod"},
		{"no expiry", without(`"exp":1900000000,`, ""), "expiry"},
		{"negative expiry", without("1900000000", "-1"), "expiry"},
		{"expiry beyond time", without("1900000000", "1e300"), "expiry"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := parseClaims(test.token)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %+v, %v; want an error about %q", got, err, test.want)
			}
		})
	}
}

// FuzzTokenClaims: any text either is refused, or names a pod, an account and
// an instant that can be compared, for this audience.
func FuzzTokenClaims(f *testing.F) {
	f.Add(encode(`{"alg":"ES256"}`, goodClaims, "sig"))
	f.Add("a.b.c")
	f.Add(encode(`{}`, `{"aud":"`+contract.Audience+`","exp":1e12}`, "s"))
	f.Fuzz(func(t *testing.T, token string) {
		got, err := parseClaims(token)
		if err != nil {
			if got != (claims{}) {
				t.Fatalf("refused with claims %+v", got)
			}
			return
		}
		if got.account.Namespace == "" || got.account.Name == "" || got.accountUID == "" || got.podName == "" || got.podUID == "" {
			t.Fatalf("accepted with a part missing: %+v", got)
		}
		if got.expires.Before(time.Unix(1, 0)) || got.expires.Add(maxMemory).Before(got.expires) {
			t.Fatalf("accepted with expiry %v", got.expires)
		}
		payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
		if err != nil || !json.Valid(payload) {
			t.Fatalf("accepted claims that are no JSON: %q, %v", payload, err)
		}
	})
}
