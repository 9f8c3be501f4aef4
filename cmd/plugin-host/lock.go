package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

var errNotHeld = errors.New("another process holds the leader's lease by now; it is not ours to give back")

// lock is the leader's lease, which a process gives back only while it holds
// it. Left alone, client-go decides that by what it saw last: a process that was
// stopped for a while, and ends for having been deposed, would take the lease
// from the one that leads.
type lock struct {
	resourcelock.Interface
	// holder is who held it when it was read last; an update is refused by the API
	// server unless that still is its version.
	holder string
}

func newLock(cluster *rest.Config, namespace string, renewDeadline time.Duration) (*lock, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("name this process: %w", err)
	}
	inner, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, namespace, leaderElectionID,
		resourcelock.ResourceLockConfig{Identity: host + "_" + uuid.NewString()}, cluster, renewDeadline)
	if err != nil {
		return nil, fmt.Errorf("make the leader's lease: %w", err)
	}
	return &lock{Interface: inner}, nil
}

// leaderLock is the lock of a process that may lead, and nil of another.
func (s *settings) leaderLock(cluster *rest.Config, renewDeadline time.Duration) (resourcelock.Interface, error) {
	if !s.leaderElect {
		return nil, nil //nolint:nilnil // nothing is elected
	}
	return newLock(ownConnections(cluster), s.leaderElectionNamespace, renewDeadline)
}

// Get implements resourcelock.Interface.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.holder = record.HolderIdentity
	}
	return record, raw, err //nolint:wrapcheck // it is the lock
}

// Update implements resourcelock.Interface.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" && l.holder != l.Identity() {
		return errNotHeld
	}
	err := l.Interface.Update(ctx, record)
	if err == nil {
		l.holder = record.HolderIdentity
	}
	return err //nolint:wrapcheck // it is the lock
}
