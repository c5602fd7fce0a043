package pgtest

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// againVariable is 1 in a process that runs tests with PostgreSQL, 0 in one that runs them with files; their
// children inherit it.
const againVariable = "DEEPWORK_TEST_AGAIN"

// OnPostgres reports whether the tests of this process use the server of Shared.
func OnPostgres() bool { return os.Getenv(againVariable) == "1" }

// Twice calls run, which runs the tests of a package. Meanwhile, if PostgreSQL is installed, it runs the
// named tests in another process, in which OnPostgres reports true. It prints that process's output if that
// fails, or if tests are verbose. A name without a test is an error. A TestMain exits with the result.
func Twice(names string, run func() int) int {
	flag.Parse()
	value := func(name string) string { return flag.Lookup(name).Value.String() }
	tests := among(names, value("test.run"))
	if OnPostgres() {
		if err := flag.Set("test.run", cmp.Or(tests, "^$")); err != nil {
			panic(err)
		}
		return run()
	}
	if tests == "" || os.Getenv(againVariable) != "" || value("test.fuzz") != "" || value("test.bench") != "" ||
		value("test.list") != "" || value("test.fuzzworker") == "true" {
		return run()
	}

	missing, err := unknown(names)
	if err != nil {
		fmt.Println("FAIL: listing the tests to run with PostgreSQL:", err)
		return 1
	}
	if len(missing) > 0 {
		fmt.Println("FAIL: the list of tests to run with PostgreSQL names some that do not exist: correct or remove",
			strings.Join(missing, ", "))
		return 1
	}

	again, said, err := startAgain()
	if err != nil {
		fmt.Println("the tests with PostgreSQL are not run:", err)
		code := run()
		if code == 0 && (!errors.Is(err, ErrMissing) || os.Getenv(requiredVariable) == "1") {
			return 1
		}
		return code
	}
	defer os.Remove(said.Name())
	defer said.Close()

	os.Setenv(againVariable, "0")
	code := run()
	err = again.Wait()
	if text, _ := os.ReadFile(said.Name()); err != nil || testing.Verbose() {
		fmt.Printf("=== with PostgreSQL\n%s", text)
	}
	if err != nil {
		fmt.Println("FAIL: with PostgreSQL:", err)
		return 1
	}

	return code
}

// among returns a pattern for the named tests that match another pattern, "" if none does.
func among(names, run string) string {
	top, below, _ := strings.Cut(run, "/")
	matching := slices.DeleteFunc(strings.Fields(names), func(name string) bool {
		found, err := regexp.MatchString(top, name)
		return err == nil && !found
	})
	if len(matching) == 0 {
		return ""
	}
	return "^(" + strings.Join(matching, "|") + ")$/" + below
}

// unknown returns the names that no test of this program has.
func unknown(names string) ([]string, error) {
	list, err := exec.Command(os.Args[0], "-test.list", "^Test").Output()
	if err != nil {
		return nil, err
	}

	tests := strings.Fields(string(list))
	return slices.DeleteFunc(strings.Fields(names), func(name string) bool { return slices.Contains(tests, name) }), nil
}

// startAgain starts this program again, with its output in a file, so that no goroutine has to read it.
func startAgain() (again *exec.Cmd, said *os.File, err error) {
	if _, err := Shared(); err != nil {
		return nil, nil, err
	}

	if said, err = os.CreateTemp("", "again"); err != nil {
		return nil, nil, err
	}

	args := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(arg string) bool { // files that this process writes
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		return name == "test.testlogfile" || name == "test.gocoverdir" || strings.HasSuffix(name, "profile")
	})
	again = exec.Command(os.Args[0], args...)
	again.Env = append(os.Environ(), againVariable+"=1")
	again.Stdout, again.Stderr = said, said
	return again, said, again.Start()
}

// Leaks is goleak.Find, but ignores that a severed connection waits for its server for up to 15 seconds.
func Leaks(o ...goleak.Option) error {
	return goleak.Find(append(o,
		goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgconn.(*PgConn).asyncClose.func1"))...)
}
