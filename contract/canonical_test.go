package contract

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/cyberphone/json-canonicalization/go/src/webpki.org/jsoncanonicalizer"
)

// TestIsCanonical_SkipsTheTransformation: what commands look like needs none.
func TestIsCanonical_SkipsTheTransformation(t *testing.T) {
	for text, want := range map[string]bool{
		`{}`: true,
		`{"a":{"b":[1,"x",{"c":null}],"d":true},"e":"","f":123456789012345}`: true,
		`{"B":1,"a":1}`:                          true,
		`{"a":1,"B":1}`:                          false,
		`{"a":1,"a":1}`:                          false,
		`{"a":{"d":1,"c":1}}`:                    false,
		`{"a":[{"d":1,"c":1}]}`:                  false,
		`{"a":1.5}`:                              false,
		`{"a":1e3}`:                              false,
		`{"a":-1}`:                               false,
		`{"a":1234567890123456}`:                 false,
		`{"a":"\\u003c"}`:                        false,
		`{"a":"\u00e9"}`:                         false,
		`[]`:                                     false,
		`"a"`:                                    false,
		`null`:                                   false,
		`{"a":[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]}`: false,
	} {
		if got := isCanonical([]byte(text)); got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
}

// FuzzIsCanonical: whatever is taken as it is, the transformation leaves as it
// is.
func FuzzIsCanonical(f *testing.F) {
	for _, seed := range []string{
		`{"a":1,"b":[{"c":"d"}]}`, `{"b":1,"a":2}`, `{"a":1e3}`, `{"a":"\\u0041"}`, `{"":{"":[]}}`, `{"a":[0,-0,1.0,10000000000000000]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		plain, err := json.Marshal(json.RawMessage(text))
		if err != nil || !isCanonical(plain) {
			return
		}
		canonical, err := jsoncanonicalizer.Transform(plain)
		if err != nil || !bytes.Equal(canonical, plain) {
			t.Fatalf("%s is taken as canonical, which is %s (%v)", plain, canonical, err)
		}
	})
}
