//go:build unix && !linux

package process

import (
	"context"
	"log/slog"
	"os/exec"
)

// Orphans are nobody's here: only Linux, on which pods run, gives them away.
type Orphans struct{}

// Adopt does nothing here.
func Adopt(*slog.Logger) *Orphans { return nil }

// Run does nothing here.
func (*Orphans) Run(context.Context) {}

func (*Orphans) start(cmd *exec.Cmd) error { return cmd.Start() } //nolint:wrapcheck // the caller wraps it

func (*Orphans) end(int) {}
