// Package store keeps the records of Sandgate in an SQLite database: the
// sandbox.Store of a single server.
//
// # Durability
//
// The database runs in WAL mode with synchronous=FULL: when a method returns
// nil, what it wrote survives a crash of the process, of the kernel, and a
// power cut. Every method is one transaction. Writes go through one connection,
// one after the other, in the order they asked for it; reads use connections
// of their own and never wait for a writer.
//
// A caller that gives up (its context ends) while it waits for its turn, or
// before the commit, has changed nothing.
//
// # What is stored how
//
// Times are integers, nanoseconds since the Unix epoch; they come back in UTC.
// The zero time is 0. Durations are nanoseconds. Lists, maps and event data are
// JSON, so numbers in Event.Data come back as float64, and bytes in an argument
// or a value that are not UTF-8 come back as U+FFFD.
//
// # Migrations
//
// The schema is the sum of the numbered files in migrations. Each is applied in
// one transaction with the note that it was. They only go forward: a file that
// has been released is never edited, and a database that is newer than the
// program is refused.
package store
