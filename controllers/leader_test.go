package controllers

import (
	"context"
	"errors"
	"testing"

	"github.com/go-logr/logr"

	"github.com/kandev/plugin-host/hostsvc/fence"
)

// inTerm is a store in which a term is in force.
type inTerm struct {
	Store
	term fence.Term
}

func (s inTerm) Term(context.Context) (fence.Term, error) { return s.term, nil }

// A process that is between two terms of its own has not been deposed.
func TestLeader_EndsTheProcessOnlyWhereAnotherOneLeads(t *testing.T) {
	mine, newer := fence.Term{StoreEpoch: 1, LeaderEpoch: 1}, fence.Term{StoreEpoch: 2, LeaderEpoch: 2}
	for name, c := range map[string]struct {
		mine, inForce fence.Term
		want          error
		deposed       bool
	}{
		"it leads":                             {mine, mine, nil, false},
		"another one leads":                    {mine, newer, fence.ErrDeposed, true},
		"it has resigned":                      {fence.Term{}, mine, errNoTerm, false},
		"it has resigned and begins its next":  {fence.Term{}, newer, errNoTerm, false},
		"it has resigned, and nobody ever led": {fence.Term{}, fence.Term{}, errNoTerm, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLeader(inTerm{term: c.inForce}, nil, nil, nil, nil, nil, logr.Discard())
			l.term = c.mine
			if err := l.current(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			select {
			case err := <-l.deposed:
				if !c.deposed {
					t.Errorf("the process ends: %v", err)
				}
			default:
				if c.deposed {
					t.Error("the process goes on")
				}
			}
		})
	}
}
