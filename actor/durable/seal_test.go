package durable

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
)

func TestSealIsTheLastKey(t *testing.T) {
	body := "{\n  \"a\": 1\n}"
	sealed, _, err := Seal([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("{\n  \"a\": 1,\n  \"checksum\": \"sha256:%x\"\n}", sha256.Sum256([]byte("{\n  \"a\": 1")))
	if string(sealed) != want {
		t.Errorf("sealed is %q, want %q", sealed, want)
	}
	got, _, err := Unseal(sealed)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != body {
		t.Errorf("opened is %q, want %q", got, body)
	}
}

func TestSealRefusesWhatIsNoRecord(t *testing.T) {
	sealed, _, err := Seal([]byte("{\n  \"n\": 1\n}"))
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"", "{}", "{\n}", "{\n\n}", "[\n  1\n]", "{\n  \"a\": 1 }", "{\n  \"a\": 1\n}\n",
		"{\n  \"a\": 1,\n}", string(sealed)} {
		if _, _, err := Seal([]byte(body)); err == nil {
			t.Errorf("%q was sealed", body)
		}
	}
}

func TestNoAlteredRecordIsAccepted(t *testing.T) {
	whole, _, err := Seal([]byte("{\n  \"format_version\": 1,\n  \"goal\": \"ä b\",\n  \"outputs\": {}\n}"))
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, data []byte) {
		t.Helper()
		if body, _, err := Unseal(data); err == nil {
			t.Errorf("%s: %q was accepted as %q", what, data, body)
		}
	}
	for bit := range len(whole) * 8 {
		bad := bytes.Clone(whole)
		bad[bit/8] ^= 1 << (bit % 8)
		refused(fmt.Sprintf("bit %d flipped", bit), bad)
	}
	for n := range len(whole) {
		refused(fmt.Sprintf("cut to %d bytes", n), bytes.Clone(whole[:n]))
		refused(fmt.Sprintf("byte %d left out", n), append(bytes.Clone(whole[:n]), whole[n+1:]...))
		refused(fmt.Sprintf("zeros from byte %d on", n), append(bytes.Clone(whole[:n]), make([]byte, len(whole)-n)...))
	}
	for _, tail := range []string{"\n", " ", "}", "\x00", "{}", string(whole)} {
		refused("more behind it", append(bytes.Clone(whole), tail...))
		refused("more before it", append([]byte(tail), whole...))
	}
	for _, garbage := range []string{"", "null", "{}", "\x00\x00\x00", strings.Repeat("garbage ", 99), "{\n  \"a\": 1\n}", "{\n  \"a\": "} {
		refused("garbage", []byte(garbage))
	}
	// A true checksum makes no record of what is not even an object.
	refused("a sealed list", appendSeal([]byte("[1"), sha256.Sum256([]byte("[1"))))
}

func FuzzOpenSealed(f *testing.F) {
	for _, body := range [][]byte{[]byte("{\n  \"n\": 1\n}"), []byte("{\n  \"goal\": \"x\",\n  \"n\": [1, 2]\n}"), nil, []byte("{\n}")} {
		f.Add(body, uint16(0))
		if sealed, _, err := Seal(body); err == nil {
			f.Add(sealed, uint16(9))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, at uint16) {
		if body, _, err := Unseal(bytes.Clone(data)); err == nil {
			n := len(body) - len(bodyTail)
			if again := appendSeal(bytes.Clone(body[:n]), sha256.Sum256(body[:n])); !bytes.Equal(again, data) {
				t.Fatalf("%q was accepted, and its only seal is %q", data, again)
			}
		}
		sealed, sum, err := Seal(data)
		if err != nil {
			return
		}
		bad := bytes.Clone(sealed)
		bad[int(at)%len(bad)] ^= 1 << (at % 8)
		if _, _, err := Unseal(bad); err == nil {
			t.Fatalf("%q was accepted", bad)
		}
		body, again, err := Unseal(sealed)
		if err != nil || !bytes.Equal(body, data) || again != sum {
			t.Fatalf("sealed %q came back as %q (%v)", data, body, err)
		}
	})
}
