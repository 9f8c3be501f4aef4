package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

func main() { os.Exit(start(os.Args[1:], os.Stdout, os.Stderr)) }

type settings struct {
	host, ca, description, record, commit string
	printContent                          bool
}

// start runs the command and returns its exit status: 1 for a Host that doesn't
// conform, 2 for one that couldn't be driven.
func start(args []string, out, complain io.Writer) int {
	var s settings
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	flags.SetOutput(complain)
	flags.StringVar(&s.host, "host", "", "`address` of the Host")
	flags.StringVar(&s.ca, "ca", "", "PEM `file` of the CA of the Host's certificate")
	flags.StringVar(&s.description, "description", "", "JSON `file` that says what the Host was given")
	flags.StringVar(&s.record, "record", "", "`file` for the record; empty: standard output")
	flags.StringVar(&s.commit, "commit", "", "this suite's own `commit`, where the build doesn't know it")
	flags.BoolVar(&s.printContent, "print-content", false, "write the known content in the format of imports, and end")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	conforms, err := s.run(ctx, out, complain)
	switch {
	case err != nil:
		fmt.Fprintln(complain, "conformance:", err)
		return 2
	case !conforms:
		return 1
	default:
		return 0
	}
}

func (s settings) run(ctx context.Context, out, complain io.Writer) (conforms bool, err error) {
	if s.description == "" {
		return false, errors.New("-description: is required")
	}
	given, err := readDescription(s.description)
	if err != nil {
		return false, err
	}
	if s.printContent {
		return true, knownContent(given.Workspace, given.ForeignWorkspace, given.Installations[0].PluginID).write(out, nil)
	}
	if s.host == "" || s.ca == "" {
		return false, errors.New("-host and -ca are required")
	}
	if err := given.readTokens(s.description); err != nil {
		return false, err
	}
	conn, err := dial(s.host, s.ca)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }() // all was read
	own := ownBuild()
	if s.commit != "" {
		own.Commit = s.commit
	}
	found, err := run(ctx, conn, given, own)
	if err != nil {
		return false, err
	}
	if s.record != "" {
		file, err := os.Create(s.record)
		if err != nil {
			return false, fmt.Errorf("create the record: %w", err)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		out = file
	}
	if err := found.write(out); err != nil {
		return false, err
	}
	fmt.Fprintf(complain, "conformance: %d cases hold, %d don't, %d were skipped\n", found.Passed, found.Failed, found.Skipped)
	return found.Failed == 0, nil
}
