// Package screen draws what a terminal shows from what was printed on it.
//
// A client that attaches to a session has to see what is on its screen, and the
// guest holds only the bytes that led there. Sending them again is no way: they
// are cut off somewhere at their beginning, a program that asks its terminal
// something would be answered a second time, and a quarter of a megabyte is
// slow to watch. So a [Screen] takes the bytes and keeps what a terminal of
// that size would: cells, colours, cursor, modes, both of its screens and some
// of what has scrolled away. [Screen.Redraw] says it again in one piece, for a
// terminal in any state and of any size. It never answers anything.
//
// [Modes] is the small part of that: it follows what a program switches on at a
// terminal, so that it can be switched off when the client leaves.
//
// The bytes come from a sandbox and are hostile. Whatever they are, the memory
// and the time that they take are bounded, and what comes out is made of
// sequences from here; of the program's own text only printable characters get
// through.
package screen
