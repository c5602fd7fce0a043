package gate

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

// swapped is a reviewer that passes if all files that it is to read are good. While it reads, good ones are in the
// place of the bad ones that were submitted.
func swapped(how string) {
	in, _ := io.ReadAll(os.Stdin)
	var judged []string
	for _, line := range regexp.MustCompile("(?m)^- output .*`(.*)`").FindAllSubmatch(in, -1) {
		judged = append(judged, string(line[1]))
	}
	originals, _ := filepath.Glob("docs/*")
	swap := map[string]func(text string){
		"another file in its place": func(string) {
			for _, name := range originals {
				exchange(name, strings.Replace(name, "docs", "good", 1))
			}
		},
		"another folder in its place": func(string) { exchange("docs", "good") },
		"written":                     func(text string) { rewrite(originals, text) },
		"its copy written":            func(text string) { rewrite(judged, text) },
	}[how]

	swap("good")
	passed := len(judged) > 0
	for _, name := range judged {
		data, _ := os.ReadFile(name)
		passed = passed && string(data) == "good"
	}
	swap("bad")
	fmt.Printf(`{"passed": %v, "feedback": "read"}`, passed)
}

func exchange(a, b string) {
	for _, move := range [][2]string{{a, "aside"}, {b, a}, {"aside", b}} {
		if err := os.Rename(move[0], move[1]); err != nil {
			panic(err)
		}
	}
}

// rewrite writes files and hides that from their modification times.
func rewrite(names []string, text string) {
	for _, name := range names {
		fi, err := os.Stat(name)
		if err == nil {
			err = os.WriteFile(name, []byte(text), 0o600)
		}
		if err == nil {
			err = os.Chtimes(name, fi.ModTime(), fi.ModTime())
		}
		if err != nil {
			panic(err)
		}
	}
}

// What a reviewer reads itself is what was submitted: it gets a copy, and what is written meanwhile voids the review,
// also if the old content is there again at its end.
func TestAFileSwappedDuringAReviewDoesNotPass(t *testing.T) {
	for how, voids := range map[string]bool{
		"another file in its place":   true,
		"another folder in its place": false, // the files are not touched, and their copies are judged
		"written":                     true,
		"its copy written":            true,
	} {
		t.Run(how, func(t *testing.T) {
			p := newProject(t)
			var paths []string
			for _, c := range "abcdef" {
				p.write("good/"+string(c), "good")
				p.write("docs/"+string(c), "bad")
				paths = append(paths, "docs/"+string(c))
			}
			s := p.submission("step").submit("report", "docs/a").submit("docs", paths...)

			v := p.judge(Settings{Command: command("swap", how), MaxInlineFiles: 5}, s, p.plan(s))
			testkit.True(t, !v.Passed, "it passed")
			if voids {
				fault(t, v, ContentChanged, "has its old content again", "it was changed while it was reviewed",
					"the reviewer itself may write to them")
			} else {
				testkit.Equal(t, v.Feedback, "read")
			}
			left := testkit.Get(os.ReadDir(filepath.Join(p.root, ".deepwork/tmp"))).Must(t)
			testkit.Equal(t, len(left), 0, "copies that are left")
		})
	}
}

// A reviewer judges copies where nothing else happens, and git ignores them meanwhile.
func TestAReviewerIsGivenCopies(t *testing.T) {
	p := newProject(t)
	p.write("docs/a", "bad")
	s := p.submission("step").submit("docs", "docs/a")
	b := p.builder(s, &p.plan(s)[0], 0)
	testkit.Get(b.build(t.Context(), false)).Must(t)
	testkit.Must(t, b.unchanged(t.Context()))
	ignored := filepath.Join(p.root, b.copies, "..", ".gitignore")
	testkit.Equal(t, string(testkit.Get(os.ReadFile(ignored)).Must(t)), "*\n")

	testkit.Must(t, os.RemoveAll(filepath.Join(p.root, ".deepwork")))
	p.write(".deepwork", "no folder")
	v := p.judge(Settings{Command: saying(passes)}, s, p.plan(s))
	fault(t, v, NotStarted, "'docs/a' cannot be copied for the reviewer to .deepwork/tmp/")
}
