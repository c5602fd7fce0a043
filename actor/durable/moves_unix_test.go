//go:build unix

package durable

var moves = map[string]func(from, to string) error{"the system's": Disk{}.MoveNew, "by a second name": linkNew}
