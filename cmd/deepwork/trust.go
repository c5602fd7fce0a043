package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"deepwork/actor/xslices"
	"deepwork/catalog"
	"deepwork/catalog/config"
	"deepwork/catalog/trust"
	"deepwork/cmd/deepwork/validate"
	"deepwork/session/show"
	"deepwork/session/state"
	"deepwork/session/store/backend"
)

// trustFlags select actions other than approving.
type trustFlags struct{ list, revoke, deny bool }

func (a *app) trustCommand() *cobra.Command {
	var f trustFlags
	cmd := &cobra.Command{
		Use:   "trust",
		Short: "Approve what a project's config runs and connects to",
		Long: `Show everything in a project's .deepwork/config.yml that runs a program, connects to
something or reaches outside the project, and ask for your approval at the terminal.
Nothing of it runs until you approve. An approval lasts until it is revoked; if the
config or a script that it names changes, you are asked again.

An approval does not cover what an approved program itself runs (make, npm), or the
instructions in jobs. The checks of steps in jobs are listed with the rest: of those, you approve
the command, folder and limit, and the content of the script. Removing a reviewer from the config needs no ` +
			`approval. To trust
all projects in a folder, name it under trusted_folders in your own config (deepwork
where prints its path).

If the folder would use a project of a shared database for the first time, you are shown
what it would use, and asked whether it belongs to that project.`,
		Example: `  deepwork trust
  deepwork trust --list`,
		Args: argumentCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.list && f.revoke || f.list && f.deny || f.revoke && f.deny {
				return usagef(cmd, "--list, --revoke and --deny exclude each other; give one of them")
			}
			return a.trust(context.Background(), f)
		},
	}
	storeFlagOn(a.onProject("", cmd), &a.store, storeUsage)
	flags := cmd.Flags()
	flags.BoolVar(&f.list, "list", false, "show what was approved for this project, and ask nothing")
	flags.BoolVar(&f.revoke, "revoke", false, "take back all approvals of this project")
	flags.BoolVar(&f.deny, "deny", false, "refuse everything that this project asks for, now and later")
	return cmd
}

func (a *app) trust(ctx context.Context, f trustFlags) error {
	folder, err := a.findFolder(ctx)
	if err != nil {
		return err
	}
	ledger := trust.OpenLedger(folder.Grants(), folder.Root)
	record, err := ledger.Read()
	if err != nil {
		return err
	}
	switch {
	case f.revoke:
		if err := ledger.Revoke(ctx); err != nil {
			return err
		}

		if inTrustedFolder(ctx, folder.Root, record) {
			fmt.Fprintf(a.out, "The approvals of %s are taken back, but it needs none: it is in one of "+
				"trusted_folders in your own config, %s. Remove that there, or run %s.\n", inline(folder.Root),
				config.UserFile(), a.onPath("deepwork trust --deny"))
			return nil
		}
		fmt.Fprintf(a.out, "Nothing is approved for %s any more. Running servers stop using it by their next call.\n",
			inline(folder.Root))
		if record.Denied {
			fmt.Fprintln(a.out, "Everything it asks for is still denied. To approve it, run "+
				a.onPath("deepwork trust")+".")
		}

		return nil
	case f.deny:
		if err := ledger.Deny(ctx); err != nil {
			return err
		}
		fmt.Fprintf(a.out, "Everything that %s asks for is denied. To approve it later, run %s.\n", inline(folder.Root),
			a.onPath("deepwork trust"))
		return nil
	case f.list:
		a.listGrants(folder.Root, record)
		if inTrustedFolder(ctx, folder.Root, record) {
			fmt.Fprintf(a.out, needsNone, config.UserFile())
		}
		return nil
	}

	if err := a.bind(ctx, folder); err != nil {
		return err
	}
	return a.approve(ctx, folder, ledger, record)
}

// bind asks whether the folder belongs to the project of its database, unless that is known.
func (a *app) bind(ctx context.Context, folder *state.Folder) error {
	choice, err := a.choice(ctx, folder.Root)
	if err != nil || choice.URL == "" {
		return err
	}
	s, err := backend.Look(ctx, folder, choice)
	if err != nil || !s.Unbound {
		return nil // what uses the store reports the error
	}

	s.Problem = ""
	a.describeStatus(s)
	if err := confirm(fmt.Sprintf("\nA remote and commits do not prove that a folder belongs to a project. "+
		"This one would use all of the above,\nand what is in it would reach the agents of the project.\n"+
		"Does %s belong to the project %s? Type yes: ", inline(folder.Root), inline(s.Project)),
		"the answer is not \"yes\": the folder does not use the project, and nothing was approved; "+
			"--project gives it another name", ", or name the project with --project"); err != nil {
		return err
	}
	return backend.Bind(ctx, folder, choice)
}

// needsNone says why a project needs no approval.
const needsNone = "It needs no approval: it is in one of trusted_folders in your own config, %s.\n"

// inTrustedFolder reports whether the user's own config approves everything that the project at root asks for.
func inTrustedFolder(ctx context.Context, root string, record *trust.Record) bool {
	own, err := config.Open(root).Own(ctx)
	return err == nil && !record.Denied && trust.InFolders(root, own.TrustedFolders)
}

// approve shows what a project asks for, and asks the person at the terminal to approve it.
func (a *app) approve(ctx context.Context, folder *state.Folder, ledger *trust.Ledger, record *trust.Record) error {
	file := filepath.Join(folder.Root, ".deepwork", config.FileName)
	c, err := validate.Config(file)
	if err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	set, err := trust.SetOf(folder.Root, c)
	if err != nil {
		return err
	}

	var checks trust.Set // of all jobs, those of additional folders too
	if err := a.withCatalog(ctx, func(root string, jobs *catalog.Catalog) error {
		checks = trust.ChecksOf(root, jobs.Snapshot().Jobs)
		return nil
	}); err != nil {
		return err
	}

	text, _ := validate.ReadFile(file) // only for line numbers; it was read before
	a.showSet(folder.Root, file, slices.Concat(set, checks), config.Places(text))
	a.showOwn(ctx, folder.Root)
	fault := slices.Concat(set, checks).Fault()
	if fi, err := os.Stat(file); err == nil {
		fault = cmp.Or(trust.FaultOf(folder.Root, file, fi), fault)
	}
	if fault != "" {
		return fmt.Errorf("this cannot be approved: %s", fault)
	}

	fresh := slices.DeleteFunc(slices.Clone(checks), record.ApprovedCheck)
	if record.Granted(set) && len(fresh) == 0 {
		fmt.Fprintln(a.out, "\nIt is approved already.")
		return nil
	}
	if inTrustedFolder(ctx, folder.Root, record) {
		fmt.Fprintf(a.out, "\n"+needsNone, config.UserFile())
		return nil
	}
	if len(record.Grants) > 0 {
		a.showChanges(record, set, fresh)
	}
	summary := summaryOf(set, record.Grants)
	if len(checks) > 0 {
		summary += fmt.Sprintf(" Its jobs ask to run %s (not approved before: %d).", count(len(checks), "check"),
			len(fresh))
	}

	otherwise := "" // trusted_folders do not end a denial
	if !record.Denied {
		otherwise = ", or name the folder under trusted_folders in your own config, " + config.UserFile()
	}
	if err := confirm(fmt.Sprintf("\n%s\nMay the project in %s do all of this? Type yes: ", summary,
		inline(folder.Root)),
		"the answer is not \"yes\": nothing was approved", otherwise); err != nil {
		return err
	}

	if err := ledger.Grant(ctx, set, time.Now()); err != nil {
		return err
	}
	if err := ledger.GrantChecks(ctx, checks); err != nil {
		return err
	}

	fmt.Fprintln(a.out, "Approved. Running servers use it from their next call on.")
	return nil
}

// showOwn prints which commands of the user's own config an approval lets start in a folder.
func (a *app) showOwn(ctx context.Context, root string) {
	own, err := config.Open(root).Own(ctx)
	if err != nil {
		return // it is refused elsewhere
	}
	c := own.Over(config.Default())
	lines := ""
	for _, s := range c.WorkflowTools.Sources {
		if s.URL == "" {
			lines += fmt.Sprintf("  source %s: %s\n", s.Name, inline(strings.Join(s.Command, " ")))
		}
	}
	if q := c.QualityGate; q.AgentReviewCommand != nil || q.ReviewerExecutor != "" {
		lines += fmt.Sprintf("  reviewer: %s\n", inline(q.ReviewerExecutor+strings.Join(q.AgentReviewCommand, " ")))
	}
	if lines != "" {
		fmt.Fprintf(a.out, "\nOf your own config this starts in the folder, too. Until you approve, a source starts "+
			"in your home folder\ninstead, and a reviewer not at all:\n%s", lines)
	}
}

func (a *app) showSet(root, file string, set trust.Set, lines map[string]int) {
	fmt.Fprintf(a.out, "%s asks for this:\n", inline(root))
	for _, e := range set {
		at := ""
		if line := lines[e.Key]; line > 0 {
			at = fmt.Sprintf("  (%s:%d)", inline(a.display(root, file)), line)
		}
		fmt.Fprintf(a.out, "\n%s%s\n", trust.Word(e.Key), at)
		e.Print(a.out, "  ")
	}
}

// summaryOf names the entries of a set, and says how many have changed since the last grant.
func summaryOf(set trust.Set, grants []trust.Grant) string {
	keys := xslices.Map(set, func(e trust.Entry) string { return trust.Word(e.Key) })
	text := fmt.Sprintf("It asks for %s: %s.", count(len(set), "thing"), oneLine(strings.Join(keys, ", "), 400))
	if n := len(grants); n > 0 {
		text += fmt.Sprintf(" Since the last approval: %s.", count(len(set.Changes(grants[n-1].Set)), "change"))
	}
	return text
}

func (a *app) showChanges(record *trust.Record, set, fresh trust.Set) {
	last := record.Grants[len(record.Grants)-1]
	content := func(e trust.Entry, files []string) {
		for _, name := range files {
			fmt.Fprintf(a.out, "  changed: %s, the content of %s\n", trust.Word(e.Key), name)
		}
	}
	fmt.Fprintf(a.out, "\nSince it was approved on %s:\n", last.At.Local().Format("2006-01-02 15:04"))
	for _, c := range set.Changes(last.Set) {
		switch {
		case c.Was == nil:
			fmt.Fprintf(a.out, "  new: %s\n", trust.Word(c.Is.Key))
		case c.Is == nil:
			fmt.Fprintf(a.out, "  gone: %s\n", trust.Word(c.Was.Key))
		case c.Files() != nil:
			content(*c.Is, c.Files())
		default:
			fmt.Fprintf(a.out, "  changed: %s, which was\n", trust.Word(c.Is.Key))
			c.Was.Print(a.out, "    ")
		}
	}

	for _, e := range fresh {
		files := record.ChangedFiles(e)
		content(e, files)
		if files == nil {
			fmt.Fprintf(a.out, "  new: %s\n", trust.Word(e.Key))
		}
	}
}

func (a *app) listGrants(root string, record *trust.Record) {
	switch {
	case record.Denied:
		fmt.Fprintf(a.out, "Everything that %s asks for is denied.\n", inline(root))
	case len(record.Grants) == 0:
		fmt.Fprintf(a.out, "Nothing was approved for %s.\n", inline(root))
	}
	if len(record.Checks) > 0 {
		fmt.Fprintln(a.out, "Approved checks of steps, as these were then:")
	}
	for _, e := range record.Checks {
		fmt.Fprintf(a.out, "  %s\n", trust.Word(e.Key))
		e.Print(a.out, "    ")
	}

	for _, g := range record.Grants {
		fmt.Fprintf(a.out, "Approved on %s:\n", g.At.Local().Format("2006-01-02 15:04"))
		for _, e := range g.Set {
			fmt.Fprintf(a.out, "  %s\n", trust.Word(e.Key))
			e.Print(a.out, "    ")
		}
	}
}

// confirm asks at the controlling terminal. Any answer but yes is the error refusal. Without a terminal the error names
// the alternative, if any.
func confirm(question, refusal, otherwise string) error {
	answer, err := show.Ask(question)
	if err != nil {
		return fmt.Errorf("there is no terminal to ask at: run this in one%s (%w)", otherwise, err)
	}
	if !strings.EqualFold(answer, "yes") {
		return errors.New(refusal)
	}
	return nil
}
