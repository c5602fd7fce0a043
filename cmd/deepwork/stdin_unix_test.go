//go:build unix

package main

import (
	"errors"
	"io"
	"os"
	"testing"
)

func TestInterruptibleStdin(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	in, err := interruptibleStdin(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString("input"); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 10)
	if n, err := in.Read(p); n != 5 || err != nil {
		t.Fatalf("Read = %d, %v; want what was written", n, err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := in.Read(p)
		read <- err
	}()
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-read; !errors.Is(err, os.ErrClosed) {
		t.Errorf("the blocked Read gave %v, want os.ErrClosed", err)
	}
	if _, err := in.Read(p); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a later Read gave %v, want os.ErrClosed", err)
	}

	w.Close()
	again, err := interruptibleStdin(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Read(p); err != io.EOF {
		t.Errorf("at the end Read gave %v, want io.EOF", err)
	}
}
