package attempt

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"deepwork/catalog/jsontext"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/codes"
)

// The limits of arguments. A character is a Unicode code point.
const (
	MaxTitle       = 200     // characters of a task's title
	MaxPrompt      = 100_000 // characters of a prompt, or of a description
	MaxName        = 200     // characters of other texts
	MaxRepos       = 50      // repositories of one attempt
	DefaultLimit   = 50      // entries of a list
	MaxLimit       = 500
	DefaultTail    = 100     // entries of tail_attempt
	listBytes      = 1 << 20 // bytes of descriptions and dependencies in one list of tasks
	bytesOfID      = 39      // in a list, with its quotes and comma
	MaxTail        = 1000
	MaxWait        = 30 // seconds that tail_attempt waits
	DefaultDiff    = 100_000
	MaxDiff        = 1_000_000 // bytes of get_attempt_diff
	MaxPaths       = 200       // paths of get_attempt_diff
	maxListedFiles = 1000      // changed_files of one worktree
)

// checkID returns an id in the board's spelling; its error explains what is wrong.
func checkID(field, value string) (string, error) {
	id, err := uuid.Parse(value)
	if err != nil || len(value) != 36 {
		return "", session.Wrong(codes.MalformedID,
			"%s %q is not a UUID. Pass an id as the tools give it, such as 3b241101-e2bb-4255-8caf-4136c566a962.", field, clip(value)).
			With("argument", field).With("value", clip(value))
	}
	return id.String(), nil
}

// clip shortens a text for quoting in an error.
func clip(s string) string { return jsontext.Clip(s, MaxName+1) }

// checkText refuses a text that is too long or that cannot be passed to an agent.
func checkText(field, text string, limit int) error {
	if n := utf8.RuneCountInString(text); n > limit {
		return session.Wrong(codes.TooLong, "%s has %d characters, and at most %d are allowed. Shorten it, or put long text in a file and name that file.", field, n, limit).
			With("argument", field).With("value", n).With("max", limit)
	}
	if strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
		return session.Wrong(codes.NotText, "%s contains a NUL character or invalid UTF-8. Pass plain text.", field).With("argument", field).With("value", clip(strings.ToValidUTF8(text, "\uFFFD")))
	}
	return nil
}

// checkTitle returns a title without surrounding blanks.
func checkTitle(title string) (string, error) {
	trimmed := strings.TrimSpace(title)
	if trimmed == "" {
		return "", session.Wrong(codes.MissingTitle, "title is blank. Say in one line what to do.").With("argument", "title").With("value", clip(title))
	}
	if strings.ContainsAny(trimmed, "\r\n") {
		return "", session.Wrong(codes.TitleLines, "title has more than one line. Put the rest in description.").With("argument", "title").With("value", clip(trimmed))
	}
	return trimmed, checkText("title", trimmed, MaxTitle)
}

// checkOptional checks a text that may be omitted.
func checkOptional(field string, text *string, limit int) error {
	if text == nil {
		return nil
	}
	return checkText(field, *text, limit)
}

// checkStatus returns the status that a text names.
func checkStatus(status string) (task.Status, error) {
	if s := task.Status(status); slices.Contains(task.Statuses, s) {
		return s, nil
	}
	names := make([]string, len(task.Statuses))
	for i, s := range task.Statuses {
		names[i] = string(s)
	}
	return "", session.Wrong(codes.UnknownStatus, "There is no status %q. Use one of %s.", clip(status), strings.Join(names, ", ")).
		With("argument", "status").With("value", clip(status)).With("allowed", names)
}

// page checks a list's limit and cursor.
func page(limit *int, cursor *string) (task.Page, error) {
	p := task.Page{Limit: DefaultLimit}
	var err error
	if p.Limit, err = within("limit", limit, DefaultLimit, 1, MaxLimit); err != nil {
		return p, err
	}
	if cursor != nil {
		p.Cursor = *cursor
	}
	return p, nil
}

// within returns the given number, or its default.
func within(field string, given *int, otherwise, least, most int) (int, error) {
	if given == nil {
		return otherwise, nil
	}
	if *given < least || *given > most {
		return 0, session.Wrong(codes.OutOfRange, "%s is %d: expected %d to %d.", field, *given, least, most).
			With("argument", field).With("value", *given)
	}
	return *given, nil
}

// checkRequest returns the key by which the board recognizes a repeated call; args is the call
// without its request_id. Its Identity is yet to be set.
func checkRequest(tool string, id *string, args any) (task.Request, error) {
	if id == nil {
		return task.Request{}, nil
	}
	if strings.TrimSpace(*id) == "" {
		return task.Request{}, session.Wrong(codes.BlankRequestID, "request_id is blank. Leave it out, or pass a text that is new for each call.").With("argument", "request_id").With("value", clip(*id))
	}
	if err := checkText("request_id", *id, MaxName); err != nil {
		return task.Request{}, err
	}
	return task.Request{Tool: tool, RequestID: *id, ArgsDigest: digest(args)}, nil
}

// id returns the attempt that a follow-up names, or nil if it names none.
func (a FollowUpArgs) id() (*string, error) {
	given := a.AttemptID
	if a.WorkspaceID != nil {
		if given != nil && !strings.EqualFold(*given, *a.WorkspaceID) {
			return nil, session.Wrong(codes.TwoTargets, "attempt_id (%q) and workspace_id (%q) differ. They are two names for the same argument: pass attempt_id alone.",
				clip(*given), clip(*a.WorkspaceID)).With("argument", "workspace_id").With("value", clip(*a.WorkspaceID)).With("attempt_id", clip(*given))
		}
		given = a.WorkspaceID
	}
	if given == nil {
		return nil, nil
	}
	id, err := checkID("attempt_id", *given)
	if err != nil {
		return nil, err
	}
	return &id, nil
}

// id returns the attempt that a target names.
func (t Target) id() (string, error) {
	if t.AttemptID == nil {
		return "", session.Wrong(codes.MissingArgument, "attempt_id is missing. list_task_attempts lists the attempts of a task.").With("argument", "attempt_id")
	}
	return checkID("attempt_id", *t.AttemptID)
}

// some lists names for an error, up to a limit.
func some(names []string, none string) string {
	const shown = 20
	if len(names) == 0 {
		return none
	}
	if len(names) > shown {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
	}
	return strings.Join(names, ", ")
}
