package main

import (
	"io"
	"strings"
	"testing"
)

func TestFlags(t *testing.T) {
	env := func(name string) string {
		return map[string]string{"KANDEV_PLUGIN_HOST_ADDRESS": "host:8443", "KANDEV_PLUGIN_TOKEN_FILE": "/token"}[name]
	}
	tests := map[string]struct{ args, want string }{
		"a package":                {"--package=p", ""},
		"a signed package":         {"--package=p --signature-key-file=k", ""},
		"a binary":                 {"--binary=b --manifest=m", ""},
		"nothing":                  {"", "one of --package and --binary"},
		"both":                     {"--package=p --binary=b --manifest=m", "one of --package and --binary"},
		"a binary alone":           {"--binary=b", "--manifest goes with --binary"},
		"a manifest of a package":  {"--package=p --manifest=m", "--manifest goes with --binary"},
		"a signed binary":          {"--binary=b --manifest=m --signature-key-file=k", "has no signature"},
		"no host":                  {"--package=p --host-address=", "--host-address is required"},
		"a webhook's time":         {"--package=p --webhook-timeout=4m", ""},
		"no time for a webhook":    {"--package=p --webhook-timeout=0", "--webhook-timeout is 0s"},
		"too much for a webhook":   {"--package=p --webhook-timeout=241s", "1s to 4m0s"},
		"a time without a unit":    {"--package=p --webhook-timeout=5", "invalid value"},
		"half a certificate":       {"--package=p --http-tls-key-file=k", "go together"},
		"a bearer in clear":        {"--package=p --platform-token-file=t", "isn't sent in clear"},
		"a bearer on all":          {"--package=p --platform-token-file=t --http-listen=0.0.0.0:1", "isn't sent in clear"},
		"a bearer by a name":       {"--package=p --platform-token-file=t --http-listen=host:1", "isn't sent in clear"},
		"a bearer inside":          {"--package=p --platform-token-file=t --http-listen=127.0.0.1:1", ""},
		"a bearer inside, by IPv6": {"--package=p --platform-token-file=t --http-listen=[::1]:1", ""},
		"a bearer over TLS":        {"--package=p --platform-token-file=t --http-tls-cert-file=c --http-tls-key-file=k", ""},
		"a bearer and no server":   {"--package=p --platform-token-file=t --http-listen=0", ""},
		"an argument":              {"--package=p more", `unexpected argument "more"`},
		"an unknown flag":          {"--package=p --more", "not defined"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s, err := parse(strings.Fields(test.args), env, io.Discard)
			switch {
			case test.want == "" && err != nil, test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("answers %v", err)
			case err == nil && (s.hostAddress != "host:8443" || s.tokenFile != "/token" || s.hostCAFile == ""):
				t.Errorf("the environment was not read: %+v", s)
			}
		})
	}
}
