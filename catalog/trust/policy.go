package trust

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"deepwork/actor/durable"
	"deepwork/actor/process"
	"deepwork/actor/xslices"
	"deepwork/catalog/config"
)

// A Policy approves config for a config.Source, for one project and one process. Its Approve may be called
// from any goroutine.
type Policy struct {
	Root   string // of the project, without links
	File   string // its config file
	Ledger *Ledger
	Logger *slog.Logger // nil disables logging

	mu        sync.Mutex
	project   *config.Config // the config of the last call
	user      *config.User
	record    *Record // the record of the last call
	fault     string  // why the last call could not read it, or ""
	answer    *config.Approval
	recheckAt time.Time // when to decide again while something is withheld

	good *config.Config // the config last in force
	set  Set            // its set
}

// Approve returns which parts of a project's config are in force: everything if the project is in one of the
// user's trusted folders, or if the user granted exactly that; else what was granted earlier in this process,
// and still is; else nothing. It reads the files that commands name when the configs or the grants have
// changed. While something is withheld, it also reads them at most once per second, since they may match a
// grant again. Otherwise it costs one stat.
func (p *Policy) Approve(project *config.Config, user *config.User) *config.Approval {
	p.mu.Lock()
	defer p.mu.Unlock()
	record, err := p.Ledger.Read()
	fault := ""
	if err != nil {
		fault = err.Error()
	}
	same := p.answer != nil && p.project == project && p.user == user && p.record == record && p.fault == fault
	if same && (p.answer.Withheld == nil || time.Now().Before(p.recheckAt)) {
		return p.answer
	}
	p.project = project
	p.user = user
	p.record = record
	p.fault = fault
	began := time.Now()
	answer := p.decide(project, user, record, err)
	p.recheckAt = time.Now().Add(max(time.Second, 20*time.Since(began))) // since a project may name a huge file
	if !same || !reflect.DeepEqual(answer, p.answer) {
		p.log(p.answer, answer)
		p.answer = answer
	}
	return p.answer
}

// Approved returns the approval of a command that the project's config earlier had under a key. It returns an
// error if the user did not approve the command, or has revoked that.
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
	if fault == "" && record.Granted(set) {
		p.good, p.set = project, set
		return &config.Approval{Use: project, Files: record.files(set)}
	}

	// No file in the project is approved, not even for a command in the user's own config.
	asked := xslices.Map(set, func(e Entry) config.Asked { return config.Asked{Key: e.Key, Text: e.Text()} })
	a := &config.Approval{
		Files: []map[string]string{},
		Withheld: &config.Withheld{
			Denied:  err == nil && record.Denied,
			Fault:   fault,
			Asked:   asked,
			Changed: record.changed(set),
		},
	}
	if err == nil && p.good != nil && record.Granted(p.set) {
		a.Use = p.good
		a.Files = record.files(p.set)
		a.Withheld.Kept = true
	}
	return a
}

// log logs once what is not in force, and once when that is over.
func (p *Policy) log(before, after *config.Approval) {
	if p.Logger == nil {
		return
	}

	w := after.Withheld
	switch {
	case w != nil && w.Plain() && !w.Denied && w.Fault == "":
	case w != nil:
		keys := xslices.Map(w.Asked, func(a config.Asked) string { return a.Key })
		what := "the project's config asks for what the user has not approved: it does not run"
		if w.Kept {
			what = "the project's config asks for what the user has not approved: what was approved before stays in use"
		}
		if w.Denied {
			what = "the user denied what would run in the project: it does not run"
		}
		attrs := []any{"keys", strings.Join(keys, ", "), "changed", strings.Join(w.Changed, ", "), "remedy",
			"run deepwork trust in a terminal"}
		if w.Fault != "" {
			attrs = append(attrs, "fault", w.Fault)
		}
		p.Logger.Warn(what, attrs...)
	case before != nil && before.Withheld != nil:
		p.Logger.Info("the user approved the project's config")
	}
}

// files returns the sums of the files that commands name, for each of the grants with the values of a set: a
// project's branches may have different versions of a script.
func (r *Record) files(s Set) (all []map[string]string) {
	for _, g := range r.Grants {
		if s.narrows(g.Set, Entry.sameValue) {
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

// Text returns the command, URL or value of the entry, on one line.
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
		return strings.Join(xslices.Map(v, func(w any) string { return quoted(fmt.Sprint(w)) }), " ")
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

// Program returns the path of a command's program, found as Find does, after Check.
func Program(root string, a *config.Approval, command []string) (string, error) {
	if err := Check(root, a, command); err != nil {
		return "", err
	}
	return Find(root, command[0])
}

// Check returns an error that wraps ErrChanged unless the user approved the project's files that a command
// names together, as they are now. Call it before the command runs.
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
		approvals = slices.DeleteFunc(slices.Clone(approvals), func(files map[string]string) bool {
			return files[f.name] != sum
		})
		if fault != "" || len(approvals) == 0 {
			return fmt.Errorf("%s %w", f.name, ErrChanged)
		}
	}

	return nil
}

// maxGrants limits the file of a project's grants.
const maxGrants = 16 << 20 // bytes

// A Grant is a set that the user approved.
type Grant struct {
	Hash string    `json:"hash"`
	At   time.Time `json:"at"`
	Set  Set       `json:"set"`
}

// A Record holds the user's decisions about one project.
type Record struct {
	Path   string  `json:"path"` // of the project, without links
	Denied bool    `json:"denied,omitempty"`
	Grants []Grant `json:"grants"` // the latest last
	// Checks are the approved checks of steps, each approved separately, newest last.
	Checks Set `json:"checks,omitempty"`
	// Bound are the projects in databases whose sessions and board the folder uses.
	Bound []string `json:"bound,omitempty"`
}

// A Ledger stores the user's decisions about one project in a file outside of it. Its methods may
// be called from any goroutine, and by several processes.
type Ledger struct {
	root string
	file string

	mu   sync.Mutex
	seen fs.FileInfo // of the file from which last was read; nil if it is missing
	last *Record
}

// Granted reports whether a set is approved, or asks for less than one that is.
func (r *Record) Granted(s Set) bool {
	return !r.Denied && slices.ContainsFunc(r.Grants, func(g Grant) bool { return s.narrows(g.Set, Entry.same) })
}

// changed returns how a set differs from the most similar approved one: files by their names, and keys of the
// config. nil means that no set is approved.
func (r *Record) changed(s Set) (names []string) {
	var nearest []Change
	for _, g := range slices.Backward(r.Grants) {
		c := s.Changes(g.Set)
		if len(c) == 0 {
			return nil
		}
		if nearest == nil || len(c) < len(nearest) {
			nearest = c
		}
	}
	for _, c := range nearest {
		files := c.Files()
		if files == nil {
			files = []string{Word(cmp.Or(c.Is, c.Was).Key) + " in .deepwork/config.yml"}
		}
		names = append(names, files...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

var emptyRecord = &Record{}

// OpenLedger returns the ledger of the project at root, a path without links. It does not touch the
// disk.
func OpenLedger(file, root string) *Ledger { return &Ledger{root: root, file: file} }

// Read returns the record of the project. While the file is unchanged, it returns the same record, at the
// cost of one stat. The caller must not change it.
func (l *Ledger) Read() (*Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fi, err := os.Lstat(l.file)
	if errors.Is(err, fs.ErrNotExist) {
		l.seen, l.last = nil, emptyRecord
		return l.last, nil
	}
	if err == nil && fi.Mode().IsRegular() { // at each call, since chmod does not change the modification time
		if fault := durable.FaultOf(l.file, fi); fault != "" {
			return emptyRecord, fmt.Errorf("what was approved cannot be relied on: %s", fault)
		}
	}
	if err == nil && l.seen != nil && os.SameFile(fi, l.seen) && fi.ModTime().Equal(l.seen.ModTime()) &&
		fi.Size() == l.seen.Size() {
		return l.last, nil
	}

	var r Record
	var text []byte
	if err == nil {
		text, fi, err = durable.Read(l.file, maxGrants)
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err == nil && r.Path != l.root {
		err = fmt.Errorf("it is about %s", r.Path)
	}
	if err != nil {
		return emptyRecord, fmt.Errorf("reading what was approved in %s: %w", l.file, err)
	}
	l.seen, l.last = fi, &r
	return l.last, nil
}

// Grant approves a set from now on, and cancels a Deny.
func (l *Ledger) Grant(ctx context.Context, s Set, now time.Time) error {
	return l.change(ctx, func(r *Record) {
		r.Denied = false
		hash := s.Hash()
		r.Grants = slices.DeleteFunc(r.Grants, func(g Grant) bool { return g.Hash == hash })
		r.Grants = append(r.Grants, Grant{hash, now.UTC(), s})
	})
}

// Revoke removes all grants.
func (l *Ledger) Revoke(ctx context.Context) error {
	return l.change(ctx, func(r *Record) { r.Grants, r.Checks, r.Bound = nil, nil, nil })
}

// Deny removes all grants, and refuses everything until the next Grant.
func (l *Ledger) Deny(ctx context.Context) error {
	return l.change(ctx, func(r *Record) {
		r.Denied = true
		r.Grants = nil
		r.Checks = nil
		r.Bound = nil
	})
}

// Bind records that the folder uses a project in a database.
func (l *Ledger) Bind(ctx context.Context, project string) error {
	return l.change(ctx, func(r *Record) {
		if !slices.Contains(r.Bound, project) {
			r.Bound = append(slices.Clone(r.Bound), project)
		}
	})
}

func (l *Ledger) change(ctx context.Context, change func(*Record)) error {
	dir := filepath.Dir(l.file)
	if err := (durable.Disk{}).MakeFolder(dir, 0o700); err != nil {
		return fmt.Errorf("keeping what was approved: %w", durable.Explain(err, dir))
	}
	lock, err := durable.Lock(ctx, l.file+".lock")
	if err != nil {
		return fmt.Errorf("keeping what was approved: %w", err)
	}

	r, err := l.Read()
	if err == nil {
		r = &Record{Path: l.root, Denied: r.Denied, Grants: slices.Clone(r.Grants), Checks: r.Checks, Bound: r.Bound}
		change(r)
		var text []byte
		if text, err = json.Marshal(r); err == nil { // indented values would not equal those of a config
			err = durable.Disk{}.Put(l.file, append(text, '\n'), durable.PutOptions{})
		}
	}
	if err = errors.Join(err, lock.Unlock()); err != nil {
		return fmt.Errorf("keeping what was approved: %w", durable.Explain(err, l.file))
	}

	return nil
}

// InFolders reports whether a project is in one of the folders, comparing whole path elements after resolving
// links.
func InFolders(root string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool {
		return filepath.IsAbs(f) && process.Inside(process.Resolved(f), process.Resolved(root))
	})
}
