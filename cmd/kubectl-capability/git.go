package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// gitChange is what a range of commits does to manifests: the changed files as
// they are before and after.
type gitChange struct {
	before, after []source
	// notes say what could not be looked at.
	notes []string
}

// readRange reads the manifests that change in a range such as origin/main..HEAD,
// below path. With three dots it is what HEAD has changed since it left the base,
// as a pull request shows it.
func readRange(ctx context.Context, span, path string) (gitChange, error) {
	var g gitChange
	var base, head string
	symmetric := false
	switch {
	case strings.Contains(span, "..."):
		base, head, _ = strings.Cut(span, "...")
		symmetric = true
	case strings.Contains(span, ".."):
		base, head, _ = strings.Cut(span, "..")
	default:
		return g, problem{what: fmt.Sprintf("--git: %q is no range", span), hint: "write BASE..HEAD, such as origin/main..HEAD"}
	}
	var err error
	if base, err = commitOf(ctx, base); err != nil {
		return g, err
	}
	if head, err = commitOf(ctx, head); err != nil {
		return g, err
	}
	if symmetric {
		merge, err := git(ctx, "merge-base", base, head)
		if err != nil {
			return g, err
		}
		base = strings.TrimSpace(string(merge))
	}
	listed, err := git(ctx, "diff", "--raw", "--no-abbrev", "--no-renames", "-z", base, head, "--", path)
	if err != nil {
		return g, err
	}
	fields := strings.Split(strings.TrimSuffix(string(listed), "\x00"), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		// ":100644 100755 <hash> <hash> M"
		change, name := strings.Fields(fields[i]), fields[i+1]
		if len(change) != 5 {
			return g, fmt.Errorf("git diff --raw says %q", fields[i])
		}
		mode, status := change[1], change[4]
		elsewhere := mode == "120000" || mode == "160000"
		switch {
		case elsewhere && isManifest(name):
			return g, problem{what: visible(name) + " is a symbolic link: what it points at isn't in the range, so nobody can tell what it grants"}
		case elsewhere:
			g.notes = append(g.notes, visible(name)+" is a symbolic link or a submodule; what stands behind it is not looked at")
			continue
		case !isManifest(name):
			continue
		}
		if status != "A" {
			if g.before, err = appendBlob(ctx, g.before, base, name); err != nil {
				return g, err
			}
		}
		if status != "D" {
			if g.after, err = appendBlob(ctx, g.after, head, name); err != nil {
				return g, err
			}
		}
	}
	return g, nil
}

func commitOf(ctx context.Context, name string) (string, error) {
	if name == "" {
		name = "HEAD"
	}
	out, err := git(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", name+"^{commit}")
	if err != nil {
		return "", problem{
			what: fmt.Sprintf("--git: %q is no commit here", name),
			hint: "in CI, fetch the base first: `git fetch origin main`, with a depth that reaches it",
		}
	}
	return strings.TrimSpace(string(out)), nil
}

func appendBlob(ctx context.Context, to []source, commit, name string) ([]source, error) {
	text, err := git(ctx, "show", commit+":"+name)
	if err != nil {
		return to, err
	}
	if len(text) > maxFileBytes {
		return to, problem{what: fmt.Sprintf("%s is larger than %d bytes", name, maxFileBytes)}
	}
	return append(to, source{filepath.FromSlash(name), text}), nil
}

func git(ctx context.Context, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "git", args...) //nolint:gosec // commits are resolved first, and options end before paths
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, problem{what: "--git needs git, which is not on the PATH"}
	case err != nil:
		return nil, problem{what: "git " + args[0] + ": " + strings.TrimSpace(stderr.String()), hint: "run it in the repository of the manifests"}
	}
	return stdout.Bytes(), nil
}
