package board

import (
	"context"
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
	MaxTitle     = 200     // characters of a task's title
	MaxPrompt    = 100_000 // characters of a prompt, or of a description
	MaxName      = 200     // characters of other texts
	DefaultLimit = 50      // entries of a list
	MaxLimit     = 500
	listBytes    = 1 << 20 // bytes of descriptions and dependencies in one list of tasks
	bytesOfID    = 39      // one id in a list, with its quotes and comma
)

// CheckID returns an id in the board's spelling, or an error for callers.
func CheckID(field, value string) (string, error) {
	id, err := uuid.Parse(value)
	if err != nil || len(value) != 36 {
		return "", session.Wrong(codes.MalformedID,
			"%s %q is not a UUID. An id looks like 3b241101-e2bb-4255-8caf-4136c566a962.",
			field, Clip(value)).
			With("argument", field).With("value", Clip(value))
	}
	return id.String(), nil
}

// Clip shortens a text for quoting in an error.
func Clip(s string) string { return jsontext.Clip(s, MaxName+1) }

// CheckText returns an error for a text that is too long, or that cannot be passed to an agent.
func CheckText(field, text string, limit int) error {
	if n := utf8.RuneCountInString(text); n > limit {
		return session.Wrong(codes.TooLong,
			"%s has %d characters, and at most %d are allowed. Shorten it, or put long text in a file and name "+
				"that file.", field, n, limit).
			With("argument", field).With("value", n).With("max", limit)
	}
	if strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
		return session.Wrong(codes.NotText, "%s contains a NUL character or invalid UTF-8. Pass plain text.",
			field).With("argument", field).With("value", Clip(strings.ToValidUTF8(text, "\uFFFD")))
	}

	return nil
}

// checkTitle returns a title without surrounding white space.
func checkTitle(title string) (string, error) {
	trimmed := strings.TrimSpace(title)
	if trimmed == "" {
		return "", session.Wrong(codes.MissingTitle, "title is blank. Say in one line what to do.").With("argument",
			"title").With("value", Clip(title))
	}
	if strings.ContainsAny(trimmed, "\r\n") {
		return "", session.Wrong(codes.TitleLines, "title has more than one line. Put the rest in description.").
			With("argument", "title").With("value", Clip(trimmed))
	}
	return trimmed, CheckText("title", trimmed, MaxTitle)
}

// CheckOptional is CheckText for a text that may be nil.
func CheckOptional(field string, text *string, limit int) error {
	if text == nil {
		return nil
	}
	return CheckText(field, *text, limit)
}

// checkStatus returns the status with this name.
func checkStatus(status string) (task.Status, error) {
	if s := task.Status(status); slices.Contains(task.Statuses, s) {
		return s, nil
	}

	names := make([]string, len(task.Statuses))
	for i, s := range task.Statuses {
		names[i] = string(s)
	}
	return "", session.Wrong(codes.UnknownStatus, "There is no status %q. Use one of %s.", Clip(status),
		strings.Join(names, ", ")).
		With("argument", "status").With("value", Clip(status)).With("allowed", names)
}

// checkPriority returns the priority with this name, "" for nil.
func checkPriority(given *string) (task.Priority, error) {
	if given == nil {
		return "", nil
	}

	p := task.Priority(*given)
	if p.Check() != nil {
		return "", session.Wrong(codes.InvalidArgument, "There is no priority %q. Use low, normal or high.",
			Clip(*given)).With("argument", "priority").With("value", Clip(*given))
	}
	return p, nil
}

// checkLabels returns the labels sorted and without duplicates; nil stays nil.
func checkLabels(given []string) ([]string, error) {
	if len(given) > task.MaxLabels {
		return nil, session.Wrong(codes.InvalidArgument,
			"labels has %d entries, and at most %d are allowed. Keep those that you filter by.", len(given),
			task.MaxLabels).
			With("argument", "labels").With("value", len(given)).With("max", task.MaxLabels)
	}

	all := slices.Clone(given)
	for i, label := range all {
		field := fmt.Sprintf("labels[%d]", i)
		if err := CheckText(field, label, task.MaxLabel); err != nil {
			return nil, err
		}
		if words := strings.Fields(label); len(words) != 1 || words[0] != label {
			return nil, session.Wrong(codes.InvalidArgument,
				"%s is %q: expected one word. Join words with -, as in needs-design.", field,
				Clip(label)).With("argument", field).With("value", Clip(label))
		}
	}

	slices.Sort(all)
	return slices.Compact(all), nil
}

// page checks the limit and the cursor of a list.
func page(limit *int, cursor *string) (task.Page, error) {
	p := task.Page{Limit: DefaultLimit}
	var err error
	if p.Limit, err = Within("limit", limit, DefaultLimit, 1, MaxLimit); err != nil {
		return p, err
	}
	if cursor != nil {
		p.Cursor = *cursor
	}
	return p, nil
}

// Within returns the given number, or its default.
func Within(field string, given *int, otherwise, least, most int) (int, error) {
	if given == nil {
		return otherwise, nil
	}
	if *given < least || *given > most {
		return 0, session.Wrong(codes.OutOfRange, "%s is %d: expected %d to %d.", field, *given, least, most).
			With("argument", field).With("value", *given)
	}
	return *given, nil
}

// Repeated returns the key by which the board recognizes a repeated call, and the id of what the earlier call
// created, or "". args are the call's arguments without its request_id.
func (v View) Repeated(
	ctx context.Context, tool string, id *string, args any,
) (request task.Request, created string, err error) {
	request.Identity = v.Who.Identity
	if id == nil {
		return request, "", nil
	}
	if err := session.BlankRequestID(*id); err != nil {
		return request, "", err
	}
	if err := CheckText("request_id", *id, MaxName); err != nil {
		return request, "", err
	}
	request.Tool = tool
	request.RequestID = *id
	request.ArgsDigest = digest(args)
	created, err = v.FindRequest(ctx, request)
	return request, created, Fault("looking for the request_id", err)
}

// ID returns the id of the attempt that a target names.
func (t Target) ID() (string, error) {
	if t.AttemptID == nil {
		return "", session.Wrong(codes.MissingArgument,
			"attempt_id is missing.").Next("see the attempts of a task", "list_task_attempts").
			With("argument", "attempt_id")
	}
	return CheckID("attempt_id", *t.AttemptID)
}

// Enumerate lists names for an error, up to a limit.
func Enumerate(names []string, none string) string {
	const shown = 20
	if len(names) == 0 {
		return none
	}
	if len(names) > shown {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
	}
	return strings.Join(names, ", ")
}
