// Package fence is the pass that moves authority: hold, compute, event, fence,
// status (design of the authority protocol). It declares the ports it needs
// and imports authority and contract only; the controllers implement the ports
// with the Kubernetes API, the store implements the ledger, and a simulation
// implements all of them.
//
// A pass may be killed between any two steps and run again by anyone: the
// row's revision is the one serialisation point, and an event that already
// exists is the truth of its revision.
package fence
