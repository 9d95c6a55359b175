// Package asciicast writes and reads recordings of terminals, and turns them
// into other forms.
//
// A recording is a file in the format asciicast v2: a line of JSON that
// describes the terminal, then a line for each event, [seconds, code, data],
// where the seconds count from the beginning. It is specified at
// https://docs.asciinema.org/manual/asciicast/v2 and played by asciinema and
// by anything that knows its files. [Convert] writes the newer version of the
// same, https://docs.asciinema.org/manual/asciicast/v3, whose seconds count
// from the event before, and plain text.
//
// A file is never wrong in its middle, but its last line may be torn when the
// program that wrote it died: readers leave it out, and whoever goes on with
// such a file cuts it off first ([Tail]).
//
// What a terminal shows are bytes, and JSON is text. The [Writer] holds back
// the beginning of a character until the rest of it has come, and puts U+FFFD
// in the place of what is no UTF-8.
//
// Recordings tell what somebody else's program has printed. [Screen] keeps
// such bytes from doing more to a terminal than to show.
package asciicast
