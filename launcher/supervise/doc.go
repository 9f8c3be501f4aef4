// Package supervise keeps a plugin running: it pings it, starts it again when
// it has ended or doesn't answer, waits longer before each further start, and
// gives up when that doesn't help.
//
// To give up ends the launcher, with an error: the kubelet then starts the
// container again with a backoff of its own, which has no end, counts what
// everybody can see (restarts, CrashLoopBackOff), and begins from a package
// that is checked anew. A launcher that stayed, in a state "error" of its own,
// would look healthy to the cluster.
//
// Time is the standard library's; the tests run it in testing/synctest. The
// package imports launcher/pause, gRPC's interface of a connection and the
// standard library.
package supervise
