package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/kandev/plugin-host/hostsvc/importer"
)

// seed imports what a file has and the store hasn't. Once it is imported whole, the
// same file is not looked at again: what was deleted since stays deleted.
func seed(ctx context.Context, durable importer.Store, path string, log *slog.Logger) error {
	source, err := importer.OpenFile(path)
	if err != nil {
		return err
	}
	for {
		summary, err := importer.Run(ctx, durable, source, importer.Options{SkipExisting: true, Now: time.Now})
		switch {
		case errors.Is(err, importer.ErrMoved):
			// Another replica begins too. Each time one of the two has come further.
			log.Info("Another process imports the seed file too", "line", summary.Line)
			continue
		case err != nil:
			return err
		}
		log.Info("Imported the seed file", "inserted", summary.Inserted, "there", summary.Skipped, "before", summary.Before)
		return nil
	}
}

// seedCommand is `plugin-host seed`: made-up content at scale.
func seedCommand(ctx context.Context, args []string, out, errOut io.Writer) error {
	var s settings
	var sample importer.Sample
	var show bool
	flags := flag.NewFlagSet("plugin-host seed", flag.ContinueOnError)
	flags.SetOutput(errOut)
	s.storeFlags(flags)
	flags.IntVar(&sample.Tasks, "tasks", 1000, "how many tasks to make, a `number`")
	flags.IntVar(&sample.Workspaces, "workspaces", 1, "in how many workspaces, a `number`")
	flags.IntVar(&sample.Messages, "messages", 0, "how many messages to make, a `number`; they are divided between the tasks")
	flags.IntVar(&sample.SessionMessages, "messages-per-session", 200, "how many messages a session has at most, a `number`")
	flags.StringVar(&sample.Prefix, "prefix", "sample", "what every ID begins with, a `text`: another one is another sample")
	flags.BoolVar(&show, "print", false, "write what would be imported to standard output, and import nothing")
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return usageError{fmt.Errorf("unexpected argument %q", flags.Arg(0))}
	}
	if err := sample.Check(); err != nil {
		return usageError{err}
	}
	if show {
		return sample.Write(out)
	}
	if err := s.checkStore(); err != nil {
		return usageError{err}
	}
	return importInto(ctx, s, sample.Source(), importer.Options{}, errOut)
}
