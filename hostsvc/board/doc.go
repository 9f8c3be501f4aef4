// Package board moves tasks between the steps of workflows, once for whoever asks:
// exact commands and v1 differ in what they check before, and agree on what a move
// does to the board. It keeps the rules of domain facts, section 8, over the
// transaction that it is given: slots, queues in the order of waiting, promotion in
// the transaction that frees the slot, the ledger of moves, and the moves that wait.
//
// It imports contract, domain and journal.
package board
