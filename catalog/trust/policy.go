package trust

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"

	"deepwork/catalog/config"
)

// A Policy approves config for a config.Source, for one project and one process. Its Approve may be
// called from any goroutine.
type Policy struct {
	Root   string // of the project, without links
	File   string // its config file
	Ledger *Ledger
	Logger *slog.Logger // nil disables logging

	mu      sync.Mutex
	project *config.Config // the config of the last call
	user    *config.User
	record  *Record // the record of the last call
	fault   string  // why the last call could not read it, or ""
	answer  *config.Approval

	good *config.Config // the config last in force
	set  Set            // its set
}

// Approve returns which parts of a project's config are in force: everything if the project is in a
// trusted folder of the user's, or if the user granted exactly that; else what was granted earlier
// in this process, and still is; else nothing. It reads the files that commands name when the
// configs or the grants have changed, and costs one stat otherwise.
func (p *Policy) Approve(project *config.Config, user *config.User) *config.Approval {
	p.mu.Lock()
	defer p.mu.Unlock()
	record, err := p.Ledger.Read()
	fault := ""
	if err != nil {
		fault = err.Error()
	}
	if p.answer != nil && p.project == project && p.user == user && p.record == record && p.fault == fault {
		return p.answer
	}
	p.project, p.user, p.record, p.fault = project, user, record, fault
	was := p.answer
	p.answer = p.decide(project, user, record, err)
	p.log(was, p.answer)
	return p.answer
}

// Approved returns the approval of a command that the project's config had under a key earlier. It is
// an error if the user did not approve it, or has taken that back.
func (p *Policy) Approved(user *config.User, key string, command []string) (*config.Approval, error) {
	record, err := p.Ledger.Read()
	switch {
	case err != nil:
		return nil, err
	case record.Denied:
	case InFolders(p.Root, user.TrustedFolders):
		return &config.Approval{}, nil
	}
	var files []map[string]string
	for _, g := range record.Grants {
		for _, e := range g.Set {
			var words []string
			if e.Key == key && json.Unmarshal(e.Value, &words) == nil && slices.Equal(words, command) {
				files = append(files, Set{e}.files())
			}
		}
	}
	if files == nil {
		return nil, errors.New("the user has not approved it")
	}
	return &config.Approval{Files: files}, nil
}

func (p *Policy) decide(project *config.Config, user *config.User, record *Record, err error) *config.Approval {
	asking := project
	if record.Denied {
		asking = user.Over(project)
	}
	set, serr := SetOf(p.Root, asking)
	fault := set.Fault()
	if fi, ferr := os.Stat(p.File); ferr == nil && fault == "" {
		fault = FaultOf(p.Root, p.File, fi)
	} else if ferr != nil && !errors.Is(ferr, fs.ErrNotExist) {
		serr = errors.Join(serr, ferr)
	}
	if err = errors.Join(err, serr); err != nil {
		fault = err.Error()
	}
	if fault == "" && !record.Denied && InFolders(p.Root, user.TrustedFolders) {
		return &config.Approval{Use: project}
	}
	if fault == "" && record.Granted(set.Hash()) {
		p.good, p.set = project, set
		return &config.Approval{Use: project, Files: record.files(set)}
	}
	// No file in the project is approved, for a command of the user's own config neither.
	a := &config.Approval{Files: []map[string]string{}, Withheld: &config.Withheld{Denied: err == nil && record.Denied, Fault: fault, Asked: set.asked(), Changed: record.changed(set)}}
	if err == nil && p.good != nil && record.Granted(p.set.Hash()) {
		a.Use, a.Files, a.Withheld.Kept = p.good, record.files(p.set), true
	}
	return a
}

// log logs what is not in force, once, and that it is again.
func (p *Policy) log(was, is *config.Approval) {
	if p.Logger == nil {
		return
	}
	w := is.Withheld
	switch {
	case w != nil && w.Plain() && !w.Denied && w.Fault == "":
	case w != nil:
		var keys []string
		for _, a := range w.Asked {
			keys = append(keys, a.Key)
		}
		what := "the project's config asks for what the user has not approved: it does not run"
		if w.Kept {
			what = "the project's config asks for what the user has not approved: what was approved before stays in use"
		}
		if w.Denied {
			what = "the user denied what would run in the project: it does not run"
		}
		attrs := []any{"keys", strings.Join(keys, ", "), "changed", strings.Join(w.Changed, ", "), "remedy", "run deepwork trust in a terminal"}
		if w.Fault != "" {
			attrs = append(attrs, "fault", w.Fault)
		}
		p.Logger.Warn(what, attrs...)
	case was != nil && was.Withheld != nil:
		p.Logger.Info("the user approved the project's config")
	}
}

// files returns the sums of the files that commands name in each of the grants with the values of
// a set: the branches of a project may have different versions of a script.
func (r *Record) files(s Set) (all []map[string]string) {
	for _, g := range r.Grants {
		if slices.EqualFunc(g.Set, s, Entry.sameValue) {
			all = append(all, g.Set.files())
		}
	}
	return all
}

// files returns the sums of the files that the set's commands name.
func (s Set) files() map[string]string {
	all := map[string]string{}
	for _, e := range s {
		for name, sum := range e.Files {
			all[name] = sum
		}
	}
	return all
}

// asked returns the entries for messages.
func (s Set) asked() []config.Asked {
	all := make([]config.Asked, len(s))
	for i, e := range s {
		all[i] = config.Asked{Key: e.Key, Text: e.Text()}
	}
	return all
}

// Text is the command, URL or value of the entry, on one line.
func (e Entry) Text() string {
	var value any
	if json.Unmarshal(e.Value, &value) != nil {
		return string(e.Value)
	}
	if m, ok := value.(map[string]any); ok {
		for _, key := range []string{"command", "url"} {
			if v := m[key]; v != nil && v != "" {
				value = v
				break
			}
		}
	}
	switch v := value.(type) {
	case string:
		return fmt.Sprintf("%q", v)
	case []any:
		words := make([]string, len(v))
		for i, w := range v {
			words[i] = quoted(fmt.Sprint(w))
		}
		return strings.Join(words, " ")
	}
	return string(e.Value)
}

// quoted returns a word quoted for a shell, without control characters.
func quoted(word string) string {
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool {
		return r <= ' ' || r == 0x7f || r > '~' || strings.ContainsRune("'\"\\$`|&;<>()*?[]{}#~!", r)
	}) {
		return word
	}
	return fmt.Sprintf("%q", word)
}

// Program returns the path of the program of a command, found as Find does, after Check.
func Program(root string, a *config.Approval, command []string) (string, error) {
	if err := Check(root, a, command); err != nil {
		return "", err
	}
	return Find(root, command[0])
}

// Check returns an error that wraps ErrChanged if the files in the project which a command names are
// not what the user approved together. It is called before the command runs.
func Check(root string, a *config.Approval, command []string) error {
	if a == nil || a.Files == nil {
		return nil
	}
	approvals := a.Files
	for _, f := range filesOf(root, root, command) {
		sum, fault, err := f.read()
		if err != nil {
			return err
		}
		if sum == "" && len(a.Files) == 0 {
			continue // nothing of the project would run
		}
		approvals = slices.DeleteFunc(slices.Clone(approvals), func(files map[string]string) bool { return files[f.name] != sum })
		if fault != "" || len(approvals) == 0 {
			return fmt.Errorf("%s %w", f.name, ErrChanged)
		}
	}
	return nil
}
