// Package lifecycle is the one table of everything that can happen to a grant:
// each row is a story of steps with the events, the revision, the effective set
// and the conditions that each step must leave behind. It knows no world: the
// real API server and the simulation both play it through World, so that they
// can't disagree about what a transition means. It may import contract and
// authority.
package lifecycle

//go:generate go run ./report ../../docs/reference/lifecycle.md
