package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/kandev/plugin-host/hostsvc/importer"
	"github.com/kandev/plugin-host/hostsvc/store/sqlite"
)

// usageError is a fault of the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// parseFlags parses flags and tells their faults as ones of the command line.
func parseFlags(flags *flag.FlagSet, args []string) error {
	err := flags.Parse(args)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return err //nolint:wrapcheck // it is told apart by the caller
	}
	return usageError{err}
}

// importCommand is `plugin-host import`.
func importCommand(ctx context.Context, args []string, _, errOut io.Writer) error {
	var s settings
	var o importer.Options
	flags := flag.NewFlagSet("plugin-host import", flag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.Usage = func() {
		fmt.Fprintln(errOut, "Usage: plugin-host import [flags] FILE")
		flags.PrintDefaults()
	}
	s.storeFlags(flags)
	flags.StringVar(&o.ID, "name", "", "`name` of the import, under which it goes on; empty: the digest of the file")
	flags.BoolVar(&o.DryRun, "dry-run", false, "check what is left to import and write nothing; without a store: as if that were empty")
	flags.BoolVar(&o.SkipExisting, "skip-existing", false, "leave alone what is there already, instead of refusing it")
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return usageError{fmt.Errorf("name one file to import, not %d; flags stand before it", flags.NArg())}
	}
	if !o.DryRun || s.sqlitePath != "" || s.postgresDSNFile != "" {
		if err := s.checkStore(); err != nil {
			return usageError{err}
		}
	}
	source, err := importer.OpenFile(flags.Arg(0))
	if err != nil {
		return err
	}
	return importInto(ctx, s, source, o, errOut)
}

// importInto imports into the store of the settings, and tells how far it is.
func importInto(ctx context.Context, s settings, source importer.Source, o importer.Options, out io.Writer) (err error) {
	began := time.Now()
	o.Now, o.Report = time.Now, reporter(out, began)
	if o.DryRun {
		scratch, failure := sqlite.OpenScratch()
		if failure != nil {
			return failure
		}
		o.Scratch = scratch
		defer closing(&err, scratch.Close)
	}
	durable, closeStore, err := importStore(ctx, s, o.DryRun)
	if err != nil {
		return err
	}
	defer closing(&err, closeStore)
	summary, err := importer.Run(ctx, durable, source, o)
	if summary.Before > 0 {
		fmt.Fprintf(out, "%d documents had been imported before\n", summary.Before)
	}
	what := "imported"
	if o.DryRun {
		what = "checked and not imported"
	}
	fmt.Fprintf(out, "%d documents %s, %d left alone, in %s\n", summary.Inserted, what, summary.Skipped,
		time.Since(began).Round(time.Millisecond))
	return err
}

// closing, deferred, joins the error of a close to that of its function.
func closing(err *error, closer func() error) { //nolint:gocritic // it sets its caller's result
	*err = errors.Join(*err, closer())
}

// importStore opens the store, nil where a dry run is to do without: that makes no
// database.
func importStore(ctx context.Context, s settings, dryRun bool) (importer.Store, func() error, error) {
	if dryRun && s.postgresDSNFile == "" {
		if _, err := os.Stat(s.sqlitePath); s.sqlitePath == "" || errors.Is(err, os.ErrNotExist) {
			return nil, func() error { return nil }, nil
		}
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	durable, err := open(ctx, s, log, func(err error) { log.Error("The database is lost", "error", err) })
	if errors.Is(err, sqlite.ErrLocked) {
		err = fmt.Errorf("%w: stop the Host, or import into PostgreSQL", err)
	}
	if err != nil {
		return nil, nil, err
	}
	return durable, durable.Close, nil
}

// reportEvery is how often an import tells how far it is.
const reportEvery = 5 * time.Second

func reporter(out io.Writer, began time.Time) func(importer.Summary) {
	last := began
	return func(done importer.Summary) {
		if now := time.Now(); now.Sub(last) >= reportEvery {
			last = now
			fmt.Fprintf(out, "%d documents, up to line %d\n", done.Documents, done.Line-1)
		}
	}
}
