package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// description says what the Host under test was given. Example:
//
//	{
//	  "workspace": "team-a", "foreign_workspace": "team-b", "vault": true,
//	  "installations": [{
//	    "name": "full", "token_file": "full.token", "plugin_id": "kandev.full",
//	    "declares": ["state", "api_read:tasks", "api_write:tasks"], "writers": ["api_write:tasks"],
//	    "approvals": {"team-a": ["host.v2.read:tasks"]}
//	  }]
//	}
type description struct {
	// Host is what is known of the Host, for the record.
	Host build `json:"host"`
	// Workspace and ForeignWorkspace have the known content.
	Workspace        string `json:"workspace"`
	ForeignWorkspace string `json:"foreign_workspace"`
	// Vault tells that the Host keeps plugins' secrets.
	Vault bool `json:"vault"`
	// Installations are at least two. The first declares all of v1, has all writers
	// granted, and is approved for everything in Workspace and for nothing in
	// ForeignWorkspace. The second declares all of v1, has no writer granted, and is
	// approved for everything in Workspace and for reading tasks in
	// ForeignWorkspace. Others are what they say.
	Installations []installation `json:"installations"`
}

// build is a version of a side.
type build struct {
	Commit  string `json:"commit"`
	Version string `json:"version"`
}

// installation is a caller.
type installation struct {
	// Name is what the record calls it.
	Name string `json:"name"`
	// TokenFile has its bearer token; a relative path is beside the description.
	TokenFile string `json:"token_file"`
	PluginID  string `json:"plugin_id"`
	// Declares is what its manifest declares of v1, in the words of v1's denials:
	// state, secrets, api_read:<resource>, api_write:<resource>.
	Declares []string `json:"declares"`
	// Writers are the api_write:<resource> that it was granted.
	Writers []string `json:"writers"`
	// Events are the patterns of events that its manifest declares.
	Events []string `json:"events"`
	// Approvals are the capabilities in force, by workspace.
	Approvals map[string][]string `json:"approvals"`
	// Config is what GetConfig answers.
	Config map[string]any `json:"config"`
	// Secrets are the clear texts of what it was given by reference, by reference.
	Secrets map[string]string `json:"secrets"`

	token string
}

// readDescription reads a description.
func readDescription(path string) (*description, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the description: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	d := &description{}
	if err := decoder.Decode(d); err != nil {
		return nil, fmt.Errorf("read the description %s: %w", path, err)
	}
	if err := d.check(); err != nil {
		return nil, fmt.Errorf("check the description: %w", err)
	}
	return d, nil
}

// readTokens reads the tokens that a description names.
func (d *description) readTokens(path string) error {
	for i := range d.Installations {
		of := &d.Installations[i]
		file := of.TokenFile
		if !filepath.IsAbs(file) {
			file = filepath.Join(filepath.Dir(path), file)
		}
		token, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read the token of %q: %w", of.Name, err)
		}
		if of.token = strings.TrimSpace(string(token)); of.token == "" {
			return fmt.Errorf("read the token of %q: %s is empty", of.Name, file)
		}
	}
	return nil
}

func (d *description) check() error {
	switch {
	case d.Workspace == "" || d.ForeignWorkspace == "" || d.Workspace == d.ForeignWorkspace:
		return fmt.Errorf("workspace %q, foreign_workspace %q: name two workspaces", d.Workspace, d.ForeignWorkspace)
	case len(d.Installations) < 2:
		return fmt.Errorf("installations: %d, at least 2 are needed", len(d.Installations))
	}
	for i, of := range d.Installations {
		if of.Name == "" || of.TokenFile == "" {
			return fmt.Errorf("installations[%d]: name and token_file are required", i)
		}
	}
	first := d.Installations[0]
	if len(first.Approvals[d.Workspace]) == 0 || len(first.Approvals[d.ForeignWorkspace]) != 0 {
		return fmt.Errorf("installations[0].approvals: must be in %s and not in %s", d.Workspace, d.ForeignWorkspace)
	}
	return nil
}

// approved tells whether a capability is in force.
func (i *installation) approved(workspace, capability string) bool {
	return slices.Contains(i.Approvals[workspace], capability)
}

// refusalOfV1 is the text that refuses a v1 method which needs something, "" for none.
func (i *installation) refusalOfV1(need []string) string {
	for _, name := range need {
		if !slices.Contains(i.Declares, name) {
			return fmt.Sprintf("capability '%s' not declared", name)
		}
	}
	for _, name := range need {
		if strings.HasPrefix(name, "api_write:") && !slices.Contains(i.Writers, name) {
			return fmt.Sprintf("capability '%s' not granted: a platform admin has to grant it to this installation in spec.compatibility.legacyWriters", name)
		}
	}
	return ""
}
