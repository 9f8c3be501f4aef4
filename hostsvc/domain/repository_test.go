package domain

import "testing"

func TestWireRepository_publicRemoteURL(t *testing.T) {
	for raw, want := range map[string]string{
		"":                                       "",
		"https://git.example/o/r.git":            "https://git.example/o/r.git",
		"https://user:secret@git.example/o/r":    "https://git.example/o/r",
		"https://secret@git.example:8443/o/r":    "https://git.example:8443/o/r",
		"https://git.example/o/r?token=secret#x": "https://git.example/o/r",
		"https://git.example/o/a%2Fb":            "https://git.example/o/a%2Fb",
		"ssh://git@git.example/o/r":              "ssh://git.example/o/r",
		"git@git.example:o/r.git":                "git.example:o/r.git",
		"user:secret@git.example:o/r":            "",
		"git.example:o/r":                        "git.example:o/r",
		"/home/me/r":                             "",
		"./r:x":                                  "",
		"../r":                                   "",
		"C:\\repos\\r":                           "",
		"c:/repos/r":                             "",
		"file:///home/me/r":                      "",
		"FILE://host/r":                          "",
		"https://":                               "",
		"https://us er:secret@git.example/x":     "",
		"://secret@x":                            "",
	} {
		if got := (Repository{RemoteURL: raw}).PublicRemoteURL(); got != want {
			t.Errorf("%q: %q, want %q", raw, got, want)
		}
	}
}
