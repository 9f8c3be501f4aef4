// Command bench measures what a call costs against what the transport and the
// database cost anyway, in one process over real TLS. It prints, at its end,
// lines "BENCH <name> <value> <unit>" and exits with 1 when a figure misses its
// bar. Slices of the two sides alternate and the figure is the median of their
// pairs, so that what else the machine does weighs on both. How fast a revocation
// takes hold is compared with nothing: it is measured on the demo's world, with the
// Host as a process.
//
// It may import everything of the Host but cmd.
package main
