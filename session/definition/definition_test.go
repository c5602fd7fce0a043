package definition

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog"
	"deepwork/catalog/job"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/machine"
	"deepwork/session/record"
	"deepwork/session/store"
)

func TestOnlySoManyDefinitionsAreRemembered(t *testing.T) {
	d := &Store{MaxKnown: 3}
	for i := range 20 {
		hash := strconv.Itoa(i)
		d.learn(hash, map[string]string{"one": "Do one."})
		n := len(d.known)
		testkit.Need(t, n <= d.MaxKnown && d.known[hash] != nil,
			"after %d definitions %d are remembered, at most %d and the newest are to be", i+1, n, d.MaxKnown)
	}
}

// kept are the definitions of a store, by hash.
type kept struct {
	store.Sessions
	all  map[string][]byte
	down error
}

func (k *kept) Definition(_ context.Context, hash string) ([]byte, error) {
	if k.down != nil {
		return nil, k.down
	}
	if data := k.all[hash]; data != nil {
		return data, nil
	}
	return nil, store.ErrNotFound
}

const first = `name: alpha
version: "1.0.0"
summary: s
common_job_info_provided_to_all_steps_at_runtime: c
workflows:
  - {name: main, summary: m, steps: [a, [b, c]]}
steps:
  - {id: a, name: n, description: d, instructions_file: a.md, outputs: {doc: {type: file, description: d, schema: ` +
	`s.json}}, reviews: []}
  - {id: b, name: n, description: d, instructions_file: b.md, outputs: {}, reviews: []}
  - {id: c, name: n, description: d, instructions: Do c., outputs: {}, reviews: []}
`

// A session goes on with the job as it is here, unless that cannot go on with it.
func TestWhatASessionGoesOnWith(t *testing.T) {
	root := testkit.Dir(t)
	dir := root + "/.deepwork/jobs/alpha/"
	testkit.WriteAll(t, dir, map[string]string{
		"job.yml": first,
		"a.md":    "Do a.",
		"b.md":    "Do b.",
		"s.json":  `{"type":"object"}`,
	})

	jobs := testkit.Get(catalog.Open(t.Context(), catalog.Options{Root: root})).Must(t)
	t.Cleanup(func() { testkit.Works(t, jobs.Close(context.Background())) })
	k := &kept{all: map[string][]byte{}}
	d, j := &Store{Catalog: jobs, Records: record.Of(k, root)}, jobs.Snapshot().Job("alpha")
	def := machine.Define(j, "main")
	testkit.Works(t, d.CheckSchemas(def))
	texts := testkit.Get(d.Texts(def, job.Entry{"a"})).Must(t)
	testkit.Same(t, texts, machine.Instructions{"a": "Do a."})
	def = testkit.Get(d.Keep(def, texts)).Must(t)
	k.all[def.Ref.Hash] = def.Data
	s := &machine.State{
		SessionID:     "0123abcd",
		JobName:       "alpha",
		WorkflowName:  "main",
		CurrentStepID: "a",
		Definition:    def.Ref,
		Sources:       map[string]string{"here": j.Hash},
	}
	testkit.Equal(t, d.Source("alpha")+d.Source("beta"), j.Hash)

	stored := testkit.Get(d.Kept(def.Ref)).Must(t)
	testkit.Same(t, stored.Texts, map[string]string{"a": "Do a.", "b": "Do b.", "c": "Do c."})
	testkit.Equal(t, string(stored.Job.Step("a").Outputs[0].Schema.JSON), `{"type":"object"}`)
	testkit.Same(t, testkit.Get(d.KeptTexts(def.Ref, job.Entry{"c"})).Must(t), machine.Instructions{"c": "Do c."})
	for _, same := range []machine.Instructions{texts, {"a[1]": "Do a."}} { // twice: read, and remembered
		again := testkit.Get(d.Keep(&machine.Definition{Job: def.Job, Workflow: def.Workflow, Ref: def.Ref}, same)).
			Must(t)
		testkit.True(t, again.Data == nil, "a definition that is stored is stored again")
	}
	edited := testkit.Get(d.Keep(&machine.Definition{Job: def.Job, Workflow: def.Workflow, Ref: def.Ref},
		machine.Instructions{"a": "Do it."})).Must(t)
	testkit.Need(t, edited.Data != nil, "an edit of instructions is kept as %+v", edited.Ref)
	testkit.True(t, edited.Ref.Hash != def.Ref.Hash, "an edit of instructions is kept as %+v", edited.Ref)
	testkit.Contains(t, string(edited.Data), "Do it.", "an edit of instructions is kept as %+v", edited.Ref)

	look := func(place string) (string, error) {
		def, err := d.Current(t.Context(), s, place)
		if err != nil {
			return "", err
		}
		return map[bool]string{
			true:  "stored",
			false: "here",
		}[def.Kept] + " " + strings.Join(slices.Concat(def.Workflow.Entries...), ",") + " " + def.Notice, nil
	}

	edit := func(old, now string) {
		testkit.Write(t, dir+"job.yml", strings.Replace(first, old, now, 1))
		testkit.Until(t, "the edit", func() bool {
			got := jobs.Snapshot().Job("alpha")
			return got != nil && (old == "" && got.Hash == j.Hash || old != "" && got.Hash != j.Hash) ||
				jobs.Snapshot().Err("alpha") != nil
		})
	}
	for _, c := range []struct{ old, now, here, elsewhere string }{
		{"", "", "here a,b,c ", "here a,b,c "},
		{"[b, c]", "b", "here a,b ", "stored a,b,c "},
		{"name: main", "name: other",
			"stored a,b,c Job 'alpha' no longer has the workflow 'main'. This session goes on with the definition it " +
				"has, as it was kept; edits of the job do not reach it.", "stored a,b,c "},
		{"[a, [b, c]]", "[b, c]", "stored a,b,c Job 'alpha' no longer has the step 'a' in workflow 'main'. This " +
			"session goes on with the definition it has, as it was kept; edits of the job do not reach it.",
			"stored a,b,c "},
	} {
		edit(c.old, c.now)
		testkit.Equal(t, testkit.Get(look("here")).Must(t), c.here, "%q", c.now)
		testkit.Equal(t, testkit.Get(look("elsewhere")).Must(t), c.elsewhere, "%q", c.now)

		for why, code := range map[error]string{
			store.ErrUnavailable: codes.StoreUnavailable,
			task.ErrDamaged:      "store_damaged",
		} {
			k.down = why
			testkit.True(t, c.old == "" || session.CodeOf(testkit.Get(look("here")).Err()) == code, "%q: want %s",
				c.now, code)
		}
		k.down = nil
	}
	lost := maps.Clone(k.all)
	clear(k.all)
	err := testkit.Get(look("here")).Err()
	testkit.Fails(t, err, "job 'alpha' no longer has the step 'a' in workflow 'main', and the definition it goes on "+
		"with cannot be read (it is not stored any more)")
	testkit.Fails(t, testkit.Get(d.Now(t.Context(), s)).Err(),
		"its definition is not stored here, and job 'alpha' no longer has the step 'a'")

	command := &Store{Records: d.Records}
	testkit.Fails(t, testkit.Get(command.Current(t.Context(), s, "here")).Err(), "has another version here")
	testkit.Equal(t, command.Source("alpha"), "")

	edit("", "")
	testkit.Equal(t,
		string(testkit.Get(d.Now(t.Context(), &machine.State{
			JobName:       "alpha",
			WorkflowName:  "main",
			CurrentStepID: "a",
		})).Must(t).Data), string(lost[def.Ref.Hash]), "the job as it is now")
}

// A step, or a group, whose texts are missing or too many does not begin.
func TestTextsThatDoNotFit(t *testing.T) {
	dir := testkit.Dir(t)
	testkit.WriteAll(t, dir, map[string]string{"job.yml": first, "a.md": "Do a."})
	j, faults := job.Load(dir)
	testkit.Need(t, j != nil, "%v", faults)

	d, def := &Store{}, machine.Define(j, "main")
	testkit.Fails(t, d.CheckSchemas(def), "Workflow 'main' of job 'alpha' cannot begin: output 'doc' of step 'a'")
	err := testkit.Get(d.Texts(def, job.Entry{"b"})).Err()
	testkit.Equal(t, session.CodeOf(err), codes.InstructionsMissing)
	testkit.Fails(t, err, "Step 'b' of job 'alpha' cannot begin, so nothing has moved")

	half := strings.Repeat("x", MaxEntryBytes/2-1)
	testkit.Works(t, fits(def, job.Entry{"b", "c"}, machine.Instructions{"b": half, "c": half}))
	for isKept, remedy := range map[bool]string{
		false: "Shorten the files",
		true:  "Restore the job with shorter instructions",
	} {
		own := *def
		own.Kept = isKept
		testkit.Fails(t, fits(&own, job.Entry{"b", "c"}, machine.Instructions{"b": half, "c": half + "x"}), remedy)
	}
}
