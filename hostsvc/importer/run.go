package importer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/kandev/plugin-host/contract"
)

// Source is what is imported. It reads the same whenever it is opened.
type Source struct {
	// Name is what people call it, for faults.
	Name string
	// Digest tells it from any other.
	Digest string
	Open   func() (io.ReadCloser, error)
	// Unchanged, when set, returns an error once it doesn't read the same any more.
	Unchanged func() error
}

// Options are how an import is done.
type Options struct {
	// ID is the import's name; "" is the digest of its source.
	ID string
	// SkipExisting leaves alone what is there already, instead of refusing it.
	SkipExisting bool
	// DryRun checks what is left of the import and writes nothing.
	DryRun bool
	// Scratch is where a dry run remembers what it has read. Required with DryRun.
	Scratch Scratch
	// Now is the clock.
	Now func() time.Time
	// Report, when set, is told after each batch how far the import is.
	Report func(Summary)
	// BatchDocuments bounds the documents of one commit; 0 is 500.
	BatchDocuments int
}

// Summary is what an import has done.
type Summary struct {
	Progress
	// Before is how many documents earlier runs had done.
	Before int64
	// Inserted and Skipped are those of this run.
	Inserted, Skipped int64
}

const (
	// batchDocuments and batchBytes bound one commit: meanwhile its workspace can't be
	// written by others.
	batchDocuments = 500
	batchBytes     = 2 << 20
	// maxFaults is how many faults are told at once.
	maxFaults = 20
)

// ErrOtherContent tells that the import was begun with other content.
var ErrOtherContent = errors.New("the import was begun with other content")

// Run imports a source into a store, from where the import is. With DryRun, store
// may be nil: then nothing is there. The error is a *FaultsError where the documents
// of a batch are wrong; what Summary says is imported nevertheless.
func Run(ctx context.Context, store Store, source Source, o Options) (Summary, error) {
	r := &run{store: store, source: source, o: o}
	if r.o.ID == "" {
		r.o.ID = source.Digest
	}
	if r.o.BatchDocuments == 0 {
		r.o.BatchDocuments = batchDocuments
	}
	err := r.all(ctx)
	return r.done, err
}

// run is one run of an import.
type run struct {
	store  Store
	source Source
	o      Options
	done   Summary
	// told are the faults that a dry run has found so far.
	told []Fault
	more bool
}

func (r *run) all(ctx context.Context) (err error) {
	if err := r.resume(ctx); err != nil || r.done.Complete {
		return err
	}
	in, err := r.source.Open()
	if err != nil {
		return fmt.Errorf("open %s: %w", r.source.Name, err)
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	documents, err := newReader(in, position{r.done.Offset, r.done.Line})
	if err != nil {
		return fmt.Errorf("%s: %w", r.source.Name, err)
	}
	batches := &batcher{reader: documents, now: r.o.Now, most: r.o.BatchDocuments}
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%s: stopped at line %d: %w", r.source.Name, r.done.Line, err)
		}
		b, err := batches.next()
		if err != nil {
			return fmt.Errorf("%s: %w", r.source.Name, err)
		}
		if err := r.batch(ctx, b); err != nil {
			return err
		}
		if r.o.Report != nil {
			r.o.Report(r.done)
		}
		if b.last || r.more {
			break
		}
	}
	if len(r.told) > 0 {
		return &FaultsError{Source: r.source.Name, Faults: r.told, More: r.more}
	}
	return nil
}

// resume finds where the import is.
func (r *run) resume(ctx context.Context) error {
	r.done.Progress = Progress{ID: r.o.ID, Source: r.source.Digest, Line: 1}
	if r.store == nil {
		return nil
	}
	progress, err := r.store.ImportProgress(ctx, r.o.ID)
	switch {
	case err != nil:
		return fmt.Errorf("read how far import %s is: %w", r.o.ID, err)
	case progress.ID == "":
		return nil
	case progress.Source != r.source.Digest:
		return fmt.Errorf("%s: %w than it has now, up to line %d: import that again, or this under another name",
			r.source.Name, ErrOtherContent, progress.Line-1)
	}
	r.done.Progress, r.done.Before = progress, progress.Documents
	return nil
}

// batch imports one batch, or checks it.
func (r *run) batch(ctx context.Context, b *batch) error {
	after := r.done.Progress
	after.Offset, after.Line = b.end.offset, b.end.line
	after.Documents += int64(len(b.documents))
	after.Complete = b.last
	if r.o.DryRun {
		if err := r.rehearse(ctx, b); err != nil {
			return err
		}
		after.Complete = false
		r.done.Progress = after
		r.count(b)
		return nil
	}
	if faults := b.faults(); len(faults) > 0 {
		return r.refuse(faults)
	}
	err := r.store.Import(ctx, b.workspace, r.done.Progress, after, b.digest(), func(tx Tx) error {
		if r.source.Unchanged != nil {
			if err := r.source.Unchanged(); err != nil {
				return err
			}
		}
		w, err := look(tx, b.workspace, b.documents)
		if err != nil {
			return err
		}
		faults, err := w.check(b.documents, r.o.SkipExisting)
		if err != nil {
			return err
		}
		if len(faults) > 0 {
			return r.refuse(faults)
		}
		for _, d := range b.documents {
			if d.skip {
				continue
			}
			if err := d.insert(tx); err != nil {
				return fmt.Errorf("line %d: insert %s %q: %w", d.line, d.kind, d.id, err)
			}
		}
		return nil
	})
	var faults *FaultsError
	if errors.As(err, &faults) {
		return faults
	}
	if err != nil {
		return fmt.Errorf("%s: import lines %d to %d: %w", r.source.Name, r.done.Line, b.end.line-1, err)
	}
	r.done.Progress = after
	r.count(b)
	return nil
}

func (r *run) count(b *batch) {
	for _, d := range b.documents {
		if d.skip {
			r.done.Skipped++
		} else {
			r.done.Inserted++
		}
	}
}

func (r *run) refuse(faults []Fault) error {
	return &FaultsError{Source: r.source.Name, Faults: faults[:min(len(faults), maxFaults)], More: len(faults) > maxFaults}
}

// batch are documents of one workspace, one after the other.
type batch struct {
	workspace string
	documents []*document
	end       position
	// last: nothing comes behind it.
	last bool
	hash hash.Hash
}

func (b *batch) digest() (digest contract.Digest) {
	copy(digest[:], b.hash.Sum(nil))
	return digest
}

func (b *batch) faults() (faults []Fault) {
	for _, d := range b.documents {
		faults = append(faults, d.faults...)
	}
	return faults
}

// batcher makes batches of a stream.
type batcher struct {
	reader *reader
	now    func() time.Time
	most   int
	// kept is a document that was read and belongs to the next batch.
	kept *read
}

// read is a document with where it ends and what it is.
type read struct {
	document *document
	end      position
	size     int
	digest   [sha256.Size]byte
}

func (b *batcher) read() (*read, error) {
	if r := b.kept; r != nil {
		b.kept = nil
		return r, nil
	}
	raw, err := b.reader.next()
	if err != nil {
		return nil, err
	}
	return &read{b.reader.document(raw, b.now()), raw.end, len(raw.text), sha256.Sum256(raw.text)}, nil
}

// next returns the next batch, which is empty at the end of a stream whose last batch
// was full. The digest of a batch is over the digests of its documents.
func (b *batcher) next() (*batch, error) {
	of := &batch{hash: sha256.New()}
	for size := 0; ; {
		r, err := b.read()
		if errors.Is(err, io.EOF) {
			of.last, of.end = true, b.reader.at
			return of, nil
		}
		if err != nil {
			return nil, err
		}
		d := r.document
		// One that can't be read is of no workspace, and stays with its neighbours.
		known := d.item != nil
		first := len(of.documents) == 0
		if !first && (len(of.documents) == b.most || size+r.size > batchBytes || known && d.workspace != of.workspace && of.known()) {
			b.kept = r
			return of, nil
		}
		if known && !of.known() {
			of.workspace = d.workspace
		}
		of.documents = append(of.documents, d)
		of.end = r.end
		size += r.size
		of.hash.Write(r.digest[:])
	}
}

// known tells whether the batch has a workspace yet, or is of profiles.
func (b *batch) known() bool {
	for _, d := range b.documents {
		if d.item != nil {
			return true
		}
	}
	return false
}
