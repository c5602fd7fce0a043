//go:build unix

package main

import "os"

// terminal opens the controlling terminal.
func terminal() (in, out *os.File, err error) {
	if in, err = os.Open("/dev/tty"); err != nil {
		return nil, nil, err
	}
	if out, err = os.OpenFile("/dev/tty", os.O_WRONLY, 0); err != nil {
		in.Close()
		return nil, nil, err
	}
	return in, out, nil
}
