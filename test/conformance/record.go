package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"
)

// record is what a run found. Two runs against one Host and content differ in
// nothing but revisions and the problems that name what changes.
type record struct {
	Suite build `json:"suite"`
	Host  build `json:"host"`
	// Contract is what each side says of versions.
	Contract contractVersions `json:"contract"`
	// Revisions are the first installation's, by workspace.
	Revisions []revision `json:"capability_revisions"`
	// Methods are those that the suite knows, and those that the Host says it has.
	Methods methods `json:"methods"`
	Passed  int     `json:"passed"`
	Failed  int     `json:"failed"`
	Skipped int     `json:"skipped"`
	Cases   []entry `json:"cases"`
}

type contractVersions struct {
	// Declared is what the suite was made for, Actual what the Host answers.
	Declared string `json:"declared"`
	Actual   string `json:"actual"`
}

type revision struct {
	Installation string `json:"installation"`
	Workspace    string `json:"workspace"`
	State        string `json:"state"`
	Revision     uint64 `json:"revision"`
}

type methods struct {
	Known  []string `json:"known"`
	Served []string `json:"served"`
}

// The results of a case.
const (
	passed  = "pass"
	failed  = "fail"
	skipped = "skip"
)

// entry is one case.
type entry struct {
	Method string `json:"method"`
	Name   string `json:"name"`
	Result string `json:"result"`
	// Code and Text are those of the status that decided.
	Code string `json:"code"`
	Text string `json:"text"`
	// Problem says what isn't so, or why the case was skipped.
	Problem string `json:"problem,omitempty"`
}

func (r *record) add(e entry) {
	switch e.Result {
	case passed:
		r.Passed++
	case failed:
		r.Failed++
	default:
		r.Skipped++
	}
	r.Cases = append(r.Cases, e)
}

func (r *record) write(out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	return nil
}

// ownBuild is what the build says of this side.
func ownBuild() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return build{}
	}
	return buildOf(info)
}

func buildOf(info *debug.BuildInfo) build {
	b := build{Version: info.Main.Version}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			b.Commit = setting.Value
		}
	}
	return b
}
