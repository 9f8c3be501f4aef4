package main

import (
	"context"
	"errors"
	"testing"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lease is a lock in memory.
type lease struct {
	resourcelock.Interface
	record resourcelock.LeaderElectionRecord
}

func (l *lease) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record := l.record
	return &record, nil, nil
}

func (l *lease) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	l.record = record
	return nil
}

func (*lease) Identity() string { return "us" }

// A process that wakes up deposed gives back no lease but its own.
func TestI5_OnlyTheHolderGivesTheLeaseBack(t *testing.T) {
	ctx := context.Background()
	inner := &lease{record: resourcelock.LeaderElectionRecord{HolderIdentity: "us"}}
	l := &lock{Interface: inner}
	if _, _, err := l.Get(ctx); err != nil {
		t.Fatal(err)
	}
	inner.record.HolderIdentity = "them" // while we are stopped
	if _, _, err := l.Get(ctx); err != nil {
		t.Fatal(err)
	}
	if err := l.Update(ctx, resourcelock.LeaderElectionRecord{}); !errors.Is(err, errNotHeld) || inner.record.HolderIdentity != "them" {
		t.Errorf("gave theirs back: %v, %+v", err, inner.record)
	}
	if err := l.Update(ctx, resourcelock.LeaderElectionRecord{HolderIdentity: "us"}); err != nil || inner.record.HolderIdentity != "us" {
		t.Errorf("could not take it over: %v, %+v", err, inner.record)
	}
	if err := l.Update(ctx, resourcelock.LeaderElectionRecord{}); err != nil || inner.record.HolderIdentity != "" {
		t.Errorf("could not give ours back: %v, %+v", err, inner.record)
	}
}
