// Package simulation runs the authority protocol in a world of its own: an API
// server, a store, two replicas of the Host with their controllers, humans,
// self-healing agents and plugins, in one goroutine at a time and in an order
// that a seed decides. Between any two steps anything may happen: a crash, a
// pause, a partition, a lost answer, a watch that lags, drops, repeats or stands
// still, a clock that jumps, a store that is lost or comes back older.
//
// What decides is the product's own code: authority's functions, the view, the
// fence's pass, the executor and the reader. Modelled are what stands around them,
// by the rules of the protocol: the transports, the handler of the approvals'
// watch, rounds, terms and store epochs, the check of a token, and the database as
// far as its locks and the isolation of its transactions go. Every write is checked against the invariants when it happens, every
// history of fences, writes and reads for an order that explains it, and every
// schedule must converge once its faults stop.
//
// A failure prints its seed and the last steps before it:
//
//	go test ./test/simulation -run TestSimulation -seed N
//
// runs that schedule alone, with all its steps. -schedules N runs N schedules,
// and -mutant NAME one of the seeded mutants with -seed. TestMutants makes each
// mistake that the protocol names, and demands that it is noticed, and that the
// same kind of schedule holds without it. TestLifecycle plays the table of
// test/lifecycle here, each story in many orders.
//
// Everything is a test; it may import whatever of the Host is pure or over ports.
package simulation
