package main

import (
	"os"

	"golang.org/x/sys/windows"
)

// terminal opens the console.
func terminal() (in, out *os.File, err error) {
	if in, err = os.OpenFile("CONIN$", os.O_RDWR, 0); err != nil {
		return nil, nil, err
	}
	if out, err = os.OpenFile("CONOUT$", os.O_RDWR, 0); err != nil {
		in.Close()
		return nil, nil, err
	}
	return in, out, nil
}

// discard drops what was typed at a terminal and not read yet.
func discard(in *os.File) error {
	return windows.FlushConsoleInputBuffer(windows.Handle(in.Fd()))
}
