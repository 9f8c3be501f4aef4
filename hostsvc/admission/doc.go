// Package admission is the door that every exact call goes through: the
// envelope that all exact requests share, the checks of its shape, the
// authorisation before and inside the transaction, and the typed refusal that
// every check answers with. It imports contract, authority and journal.
//
// The order of the checks is the contract's table and stands here and in
// authority.Decide only; adapters, commands and queries hold none of it.
package admission
