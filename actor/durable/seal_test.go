package durable

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// A testSealer is one whose key everybody knows.
type testSealer string

func (k testSealer) Sign(name string, content []byte) (string, error) {
	return fmt.Sprintf("%s:%x", string(k), sha256.Sum256(fmt.Appendf(nil, "%s %s %s", string(k), name, content))), nil
}

func (k testSealer) Verify(name string, content []byte, signature string) error {
	if strings.HasPrefix(signature, "broken") {
		return errNoKey
	}
	if want, _ := k.Sign(name, content); want != signature {
		return &ForeignError{"another signed it"}
	}
	return nil
}

var errNoKey = errors.New("the key cannot be read")

const sealedName = "/a/folder/a.json"

// kindOf names what Unseal says of a file.
func kindOf(path string, data []byte, s Sealer) string {
	_, _, err := Unseal(path, bytes.Clone(data), s)
	_, bad := errors.AsType[*BadFileError](err)
	_, foreign := errors.AsType[*ForeignError](err)
	switch {
	case err == nil:
		return "valid"
	case bad:
		return "damaged"
	case foreign:
		return "foreign"
	}
	return err.Error()
}

func TestSealIsTheLastKey(t *testing.T) {
	body := "{\n  \"a\": 1\n}"
	sealed, sum, err := Seal(sealedName, []byte(body), testSealer("ours"))
	must(t, err)
	signature, _ := testSealer("ours").Sign("a.json", []byte("{\n  \"a\": 1"))
	if want := "{\n  \"a\": 1,\n  \"checksum\": \"" + signature + "\"\n}"; string(sealed) != want {
		t.Errorf("sealed is %q, want %q", sealed, want)
	}
	got, again, err := Unseal("/elsewhere/a.json", sealed, testSealer("ours")) // the name counts, not the folder
	if err != nil || string(got) != body || again != sum {
		t.Errorf("opened is %q, %v, want %q", got, err, body)
	}
}

func TestKindsOfFilesAreToldApart(t *testing.T) {
	sealed, _, err := Seal(sealedName, []byte("{\n  \"n\": 1\n}"), testSealer("ours"))
	must(t, err)
	for _, c := range []struct {
		name, path, data, want string
		sealer                 testSealer
	}{
		{"ours", sealedName, string(sealed), "valid", "ours"},
		{"of another key", sealedName, string(sealed), "foreign", "theirs"},
		{"with another name", "/a/folder/b.json", string(sealed), "foreign", "ours"},
		{"altered", sealedName, strings.Replace(string(sealed), "1", "2", 1), "foreign", "ours"},
		{"reformatted", sealedName, string(sealed) + "\n", "foreign", "ours"},
		{"without a seal", sealedName, "{\n  \"n\": 1\n}", "foreign", "ours"},
		{"an object", sealedName, "{}", "foreign", "ours"},
		{"with a seal of another kind", sealedName, "{\n  \"n\": 1,\n  \"checksum\": \"MD5\"\n}", "foreign", "ours"},
		{"with a plain checksum", sealedName, "{\n  \"n\": 1,\n  \"checksum\": \"sha256:00\"\n}", "foreign", "ours"},
		{"that cannot be judged", sealedName, "{\n  \"n\": 1,\n  \"checksum\": \"broken:1\"\n}", errNoKey.Error(), "ours"},
		{"empty", sealedName, "", "damaged", "ours"},
		{"garbage", sealedName, "garbage", "damaged", "ours"},
		{"a list", sealedName, "[1]", "damaged", "ours"},
		{"nothing", sealedName, "null", "damaged", "ours"},
		{"zeros", sealedName, strings.Repeat("\x00", len(sealed)), "damaged", "ours"},
		{"cut off", sealedName, string(sealed[:len(sealed)-1]), "damaged", "ours"},
		{"cut off at the seal", sealedName, string(sealed[:bytes.Index(sealed, []byte(sealHead))]), "damaged", "ours"},
		{"with a hole", sealedName, strings.Replace(string(sealed), "1", "\x00", 1), "damaged", "ours"},
	} {
		if got := kindOf(c.path, []byte(c.data), c.sealer); got != c.want {
			t.Errorf("a file %s is %s, want %s", c.name, got, c.want)
		}
	}
}

func TestSealRefusesWhatIsNoRecord(t *testing.T) {
	sealed, _, err := Seal(sealedName, []byte("{\n  \"n\": 1\n}"), testSealer("ours"))
	must(t, err)
	for _, body := range []string{"", "{}", "{\n}", "{\n\n}", "[\n  1\n]", "{\n  \"a\": 1 }", "{\n  \"a\": 1\n}\n",
		"{\n  \"a\": 1,\n}", string(sealed)} {
		if _, _, err := Seal(sealedName, []byte(body), testSealer("ours")); err == nil {
			t.Errorf("%q was sealed", body)
		}
	}
}

func TestNoAlteredRecordIsAccepted(t *testing.T) {
	whole, _, err := Seal(sealedName, []byte("{\n  \"format_version\": 1,\n  \"goal\": \"ä b\",\n  \"outputs\": {}\n}"), testSealer("ours"))
	must(t, err)
	refused := func(what string, data []byte) {
		t.Helper()
		if body, _, err := Unseal(sealedName, data, testSealer("ours")); err == nil {
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
	// A true signature makes no record of what is not even an object.
	signature, _ := testSealer("ours").Sign("a.json", []byte("[1"))
	refused("a sealed list", appendSeal([]byte("[1"), signature))
}

func FuzzOpenSealed(f *testing.F) {
	for _, body := range [][]byte{[]byte("{\n  \"n\": 1\n}"), []byte("{\n  \"goal\": \"x\",\n  \"n\": [1, 2]\n}"), nil, []byte("{\n}")} {
		f.Add(body, uint16(0))
		if sealed, _, err := Seal(sealedName, body, testSealer("ours")); err == nil {
			f.Add(sealed, uint16(9))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, at uint16) {
		if body, _, err := Unseal(sealedName, bytes.Clone(data), testSealer("ours")); err == nil {
			if again, _, err := Seal(sealedName, body, testSealer("ours")); err != nil || !bytes.Equal(again, data) {
				t.Fatalf("%q was accepted, and its only seal is %q", data, again)
			}
		}
		sealed, sum, err := Seal(sealedName, data, testSealer("ours"))
		if err != nil {
			return
		}
		bad := bytes.Clone(sealed)
		bad[int(at)%len(bad)] ^= 1 << (at % 8)
		if _, _, err := Unseal(sealedName, bad, testSealer("ours")); err == nil {
			t.Fatalf("%q was accepted", bad)
		}
		body, again, err := Unseal(sealedName, sealed, testSealer("ours"))
		if err != nil || !bytes.Equal(body, data) || again != sum {
			t.Fatalf("sealed %q came back as %q (%v)", data, body, err)
		}
	})
}
