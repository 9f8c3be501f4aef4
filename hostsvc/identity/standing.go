package identity

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxSightingAge is how old a sighting may be, counted from before its first
	// read began, for a call to be let in on it. It is what a deleted pod can
	// still do when the watch is silent.
	maxSightingAge = 15 * time.Second
	// lookEvery is how often an account whose plugin calls is looked at.
	lookEvery = 3 * time.Second
	// lookPause is the least time between two looks at one account: forged
	// tokens that name pods can cause no more.
	lookPause = 100 * time.Millisecond
	// failurePause is how long a look that was not answered speaks for those
	// who ask after it.
	failurePause = time.Second
	// idleAfter is how long after its last call an account is looked at.
	idleAfter = 2 * time.Minute
	// followPause is the time between two watches.
	followPause = time.Second
)

// standing is what this process knows of one account: the newest sighting, and
// what the watch has taken away from it.
type standing struct {
	account Account
	seen    atomic.Pointer[seen]
	// called is when a call last asked, as the time since the Authenticator was
	// made.
	called atomic.Int64
	// owned: the last call asked which installation its pod belongs to, so those
	// looks are to tell it that no call waits for.
	owned atomic.Bool

	mu     sync.Mutex
	flight *flight
	// begun and failed are of the last look; failed is zero if it was answered.
	begun, failed time.Time
	// gone are the pods that the watch has reported, by UID: a look that began
	// before may still show them.
	gone map[string]time.Time
}

// seen is a sighting and the moment before its first read.
type seen struct {
	begun time.Time
	Sighting
}

// proves says why the pod of this UID doesn't run under the ServiceAccount of this UID,
// for the installation of the UID workloadOf unless that is ""; "" when it does. final
// tells that it never will again.
func (s *seen) proves(accountUID, podName, podUID, workloadOf string) (why string, final bool) {
	pod, found := s.Pods[podName]
	switch {
	case !found || pod.UID != podUID:
		return noPrincipal, false
	case pod.Deleting:
		return noPrincipal, true
	case s.AccountUID != accountUID:
		return noPrincipal, false
	case workloadOf != "" && pod.Installation != workloadOf:
		return notTheWorkload, false
	}
	return "", false
}

// answers tells whether a sighting has what a call asks for. Each asks for itself: while
// a registration changes, some know of it and others don't yet.
func (s *seen) answers(owned bool) bool { return s != nil && (s.Owned || !owned) }

// flight is a look on its way.
type flight struct {
	done  chan struct{}
	owned bool
	seen  *seen
	err   error
}

// standing returns the account's, and makes it at its first call.
func (a *Authenticator) standing(account Account) *standing {
	if st, ok := (*a.standings.Load())[account]; ok {
		return st
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	all := *a.standings.Load()
	if st, ok := all[account]; ok {
		return st
	}
	st := &standing{account: account, gone: map[string]time.Time{}}
	st.called.Store(int64(a.now().Sub(a.made)))
	grown := maps.Clone(all)
	grown[account] = st
	a.standings.Store(&grown)
	select {
	case a.arrived <- struct{}{}:
	default:
	}
	return st
}

func (a *Authenticator) retire(st *standing) {
	a.mu.Lock()
	defer a.mu.Unlock()
	left := maps.Clone(*a.standings.Load())
	delete(left, st.account)
	a.standings.Store(&left)
}

// current returns a sighting that is young enough, from memory if there is one.
func (a *Authenticator) current(ctx context.Context, st *standing, now time.Time, owned bool) (*seen, error) {
	st.called.Store(int64(now.Sub(a.made)))
	st.owned.Store(owned)
	if s := st.seen.Load(); s.answers(owned) && now.Sub(s.begun) < maxSightingAge {
		return s, nil
	}
	return a.look(ctx, st, now.Add(-maxSightingAge), owned)
}

// look returns a sighting that began at notBefore or later, together with
// everyone who waits for one; if owned, one that has the installations of the pods.
func (a *Authenticator) look(ctx context.Context, st *standing, notBefore time.Time, owned bool) (*seen, error) {
	for {
		f, s, err := a.join(ctx, st, notBefore, owned)
		if f == nil {
			return s, err
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, unavailable(CauseNoAnswer, context.Cause(ctx))
		}
		switch {
		case f.err != nil:
			return nil, f.err
		case f.seen.answers(owned) && !f.seen.begun.Before(notBefore):
			return f.seen, nil
		}
	}
}

// join returns the look that is on its way, begun by this call if need be, or
// what is known without one.
func (a *Authenticator) join(ctx context.Context, st *standing, notBefore time.Time, owned bool) (*flight, *seen, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if s := st.seen.Load(); s.answers(owned) && !s.begun.Before(notBefore) {
		return nil, s, nil
	}
	now := a.now()
	failed := !st.failed.IsZero()
	if failed && (st.flight != nil || now.Sub(st.failed) < failurePause) {
		// The API server is away: whoever began the next look waits for it, and the
		// others are told at once.
		return nil, nil, unavailable(CauseNoAnswer, fmt.Errorf("the pods of ServiceAccount %s/%s could not be read a moment ago", st.account.Namespace, st.account.Name))
	}
	if st.flight != nil {
		return st.flight, nil, nil
	}
	f := &flight{done: make(chan struct{}), owned: owned}
	st.flight = f
	// Nobody who waits can take the look from the others.
	go a.fly(context.WithoutCancel(ctx), st, f, lookPause-now.Sub(st.begun))
	return f, nil, nil
}

// fly looks after a pause, and keeps what was seen.
func (a *Authenticator) fly(ctx context.Context, st *standing, f *flight, pause time.Duration) {
	defer close(f.done)
	if pause > 0 {
		timer := time.NewTimer(pause)
		<-timer.C
	}
	// Each has the whole of its time, however many plugins come at once.
	a.looking <- struct{}{}
	defer func() { <-a.looking }()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	begun := a.now()
	sighting, err := a.cluster.Look(ctx, st.account, f.owned)
	took := a.now().Sub(begun)
	a.observer.Looked(err == nil, took)
	st.mu.Lock()
	defer st.mu.Unlock()
	st.flight, st.begun = nil, begun
	if err != nil {
		st.failed = a.now()
		f.err = unavailable(CauseNoAnswer, err)
		return
	}
	st.failed = time.Time{}
	f.seen = &seen{begun: begun, Sighting: sighting}
	for name, pod := range sighting.Pods {
		if _, gone := st.gone[pod.UID]; gone {
			sighting.Pods[name] = Pod{UID: pod.UID, Deleting: true}
		}
	}
	for uid, at := range st.gone {
		if at.Before(begun) {
			// A read that began since shows it as it is.
			delete(st.gone, uid)
		}
	}
	st.seen.Store(f.seen)
}

// remove takes a pod away from what was seen.
func (st *standing) remove(podUID string, now time.Time) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.gone[podUID] = now
	s := st.seen.Load()
	if s == nil {
		return
	}
	for name, pod := range s.Pods {
		if pod.UID != podUID || pod.Deleting {
			continue
		}
		narrowed := *s
		narrowed.Pods = maps.Clone(s.Pods)
		narrowed.Pods[name] = Pod{UID: podUID, Deleting: true}
		st.seen.Store(&narrowed)
		return
	}
}

// Start implements manager.Runnable: it looks at the accounts whose plugins call, until ctx ends. Without it
// every call is checked as well, and more of them wait for the API server.
func (a *Authenticator) Start(ctx context.Context) error {
	var attending sync.WaitGroup
	defer attending.Wait()
	attended := map[*standing]struct{}{}
	for {
		all := *a.standings.Load()
		for st := range attended {
			if all[st.account] != st {
				delete(attended, st)
			}
		}
		for _, st := range all {
			if _, ok := attended[st]; ok {
				continue
			}
			attended[st] = struct{}{}
			attending.Go(func() { a.attend(ctx, st) })
		}
		select {
		case <-a.arrived:
		case <-ctx.Done():
			return nil
		}
	}
}

// NeedLeaderElection tells a manager to run Start on every replica.
func (a *Authenticator) NeedLeaderElection() bool { return false }

// attend looks at and follows one account until nobody has called for a while.
func (a *Authenticator) attend(ctx context.Context, st *standing) {
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	following.Go(func() { a.follow(ctx, st) })
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		now := a.now()
		if now.Sub(a.made)-time.Duration(st.called.Load()) >= idleAfter {
			a.retire(st)
			return
		}
		// What fails is told to those who call.
		_, _ = a.look(ctx, st, now, st.owned.Load())
	}
}

// follow keeps one watch of the account's pods open.
func (a *Authenticator) follow(ctx context.Context, st *standing) {
	for {
		if s, err := a.look(ctx, st, a.now().Add(-maxSightingAge), st.owned.Load()); err == nil {
			// A watch that fails makes denial later, never wrong.
			_ = a.cluster.Follow(ctx, st.account, s.Sighting, func(podUID string) { st.remove(podUID, a.now()) })
		}
		timer := time.NewTimer(followPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// Watched is how many accounts are looked at, and the age of the oldest
// sighting that a call could be let in on.
func (a *Authenticator) Watched() (accounts int, oldest time.Duration) {
	all := *a.standings.Load()
	now := a.now()
	for _, st := range all {
		if s := st.seen.Load(); s != nil {
			oldest = max(oldest, now.Sub(s.begun))
		}
	}
	return len(all), oldest
}

// InFlight is how many reviews of tokens are on their way to the API server.
func (a *Authenticator) InFlight() int { return a.questions.taken() }
