// Package direct holds the algorithms in which ranks talk to one another without a fixed
// neighbourhood: all-pairs algorithms (every rank to every other, one or two message delays) and
// log-step algorithms (partners at distances 1, 2, 4, …).
//
// They are best where messages are small or every pair of ranks has a good path: inside a host,
// behind one switch, or over a few ranks. [Algorithms] lists them with their promises and costs.
// In cost lines p is the number of ranks, S the length of the longer of In and Out, α the time of a message, β of
// moving a byte and γ of combining a byte. Of α count messages that wait for one another; of β what the busiest
// rank sends, or, where it says so, what the root receives.
//
// Every function is pure and has the type schedule.Algorithm. A single rank is legal everywhere.
package direct
