package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/store/postgres/pgtest"
)

// sharedProject makes a project of a database, in a repository with a remote, and has the user's own config name the
// database. The board has a task.
func sharedProject(t *testing.T, more string) (top, root string) {
	t.Helper()
	top = testkit.Dir(t)
	t.Setenv("CI", "") // there, a store needs the name of its project
	more = strings.ReplaceAll(more, "TOP", filepath.ToSlash(top))
	ownUser(t, "trusted_folders: ["+top+"]\nstore: "+pgtest.URL(t)+"\n"+more)
	root = filepath.Join(top, "shop")
	writeFiles(t, root, map[string]string{"README": "hello\n"})
	inGit(t, root)
	testkit.Git(t, root, "remote", "add", "origin", "https://git.example.com/team/shop.git")
	mustPrint(t, root, "board", "add", "Rotate the keys")
	return top, root
}

// prepared makes a folder that looks like a clone of a project's repository.
func prepared(t *testing.T, root string) string {
	t.Helper()
	folder := testkit.Get(os.MkdirTemp(filepath.Dir(root), "prepared")).Must(t)
	testkit.Git(t, folder, "clone", "-q", root, ".")
	testkit.Git(t, folder, "remote", "set-url", "origin", "https://git.example.com/team/shop.git")
	return folder
}

// A folder that looks like a clone of a project's repository sees nothing of the project until the user says at a
// terminal that it belongs to it, once.
func TestAPreparedFolderDoesNotJoinAProject(t *testing.T) {
	_, root := sharedProject(t, "")
	folder := prepared(t, root)
	for _, command := range []string{"board tasks", "board add x", "sessions list", "check", "store status"} {
		fails(t, folder, strings.Fields(command),
			"the folder "+folder+" belongs to it", "deepwork trust --path "+folder)
	}
	testkit.Equal(t, strings.Count(mustPrint(t, root, "board", "tasks"), "\n"), 2)

	client, _ := startClient(t, folder)
	tasks := func() (*mcp.CallToolResult, string) {
		call := &mcp.CallToolParams{Name: "list_projects", Arguments: map[string]any{}}
		r := testkit.Get(client.CallTool(t.Context(), call)).Must(t)
		return r, resultText(r)
	}
	r, text := tasks()
	testkit.True(t, r.IsError, "%s", text)
	testkit.ContainsAll(t, text, []string{
		"StateError: The project \"shop\" in the database",
		"Ask the user to run `deepwork trust --path " + folder + "`", "--project shop",
	})

	trust := []string{"deepwork", "trust", "--path", folder}
	asksAtNoPipe(t, trust...)
	types(t, false, "no", trust, "bound to git.example.com/team/shop", "1 task,", "nothing was approved")
	fails(t, folder, []string{"board", "tasks"}, "belongs to it")
	types(t, true, "yes", trust, "Does "+folder+" belong to the project shop? Type yes: ")
	r, text = tasks()
	testkit.True(t, !r.IsError, "the server still refuses: %s", text)
	testkit.Contains(t, mustPrint(t, folder, "board", "tasks"), "Rotate the keys")
	mustPrint(t, folder, "trust") // it does not ask again

	mustPrint(t, folder, "trust", "--revoke")
	fails(t, folder, []string{"board", "tasks"}, "belongs to it")
}

// Where there is no terminal, the name of the project answers, or the folder in the user's own config.
func TestTheUserNamesTheProjectOfAFolder(t *testing.T) {
	top, root := sharedProject(t, "worker: {projects: {shop: TOP/worker}}\n")
	folder := prepared(t, root)
	fails(t, folder, []string{"board", "tasks"}, "belongs to it")
	testkit.Contains(t, mustPrint(t, folder, "sessions", "list", "--project", "shop"), "no sessions")
	fails(t, folder, []string{"board", "tasks"}, "belongs to it") // what only reads remembers nothing
	startClient(t, folder, "--project", "shop")
	testkit.Contains(t, mustPrint(t, folder, "board", "tasks"), "Rotate the keys")

	testkit.Git(t, top, "clone", "-q", root, "worker")
	testkit.Contains(t, mustPrint(t, filepath.Join(top, "worker"), "board", "tasks"), "Rotate the keys")

	other := prepared(t, root)
	fails(t, other, []string{"board", "tasks"}, "belongs to it")
	t.Setenv(config.ProjectEnv, "shop")
	testkit.Contains(t, mustPrint(t, other, "board", "tasks"), "Rotate the keys")
}

// A worktree that git has linked to the project's clone belongs to the project. A folder whose files say so does not.
func TestAWorktreeOfTheCloneBelongsToTheProject(t *testing.T) {
	top, root := sharedProject(t, "")
	linked := filepath.Join(top, "linked")
	testkit.Git(t, root, "worktree", "add", "-q", linked)
	testkit.Contains(t, mustPrint(t, linked, "board", "tasks"), "Rotate the keys")

	forged := testkit.Dir(t)
	pointer := testkit.Get(os.ReadFile(filepath.Join(linked, ".git"))).Must(t)
	writeFiles(t, forged, map[string]string{".git": string(pointer)})
	fails(t, forged, []string{"board", "tasks"}, "belongs to it")

	forged = testkit.Dir(t)
	own := filepath.Join(forged, "worktrees", "x")
	writeFiles(t, forged, map[string]string{
		".git": "gitdir: " + own + "\n", "worktrees/x/commondir": filepath.Join(root, ".git") + "\n",
		"worktrees/x/gitdir": filepath.Join(forged, ".git") + "\n", "worktrees/x/HEAD": "ref: refs/heads/main\n",
	})
	fails(t, forged, []string{"board", "tasks"}, "belongs to it")
}

// A project that was moved is still one that the user has named, once its state is adopted.
func TestAMovedFolderBelongsToItsProject(t *testing.T) {
	top, root := sharedProject(t, "")
	client, _ := startClient(t, root) // makes its state
	callTool(t, client, "get_workflows", map[string]any{})
	testkit.Works(t, client.Close())
	moved := filepath.Join(top, "moved")
	must(t, os.Rename(root, moved))
	fails(t, moved, []string{"board", "tasks"}, "belongs to it")
	mustPrint(t, moved, "where", "--adopt", root)
	testkit.Contains(t, mustPrint(t, moved, "board", "tasks"), "Rotate the keys")
}

// A server in another clone lists the sessions that were moved last in the first one, with the machine and the folder,
// also while a server runs there.
func TestAnotherCloneListsTheSessionsOfTheFirst(t *testing.T) {
	_, root := sharedProject(t, "")
	writeFiles(t, root, map[string]string{
		".deepwork/jobs/one/job.yml": jobText("one", "a"), ".deepwork/jobs/one/a.md": "Do it.\n",
	})
	client, _ := startClient(t, root)
	id := beginSession(t, client, "one", "Close it")
	clone := prepared(t, root)
	second, _ := startClient(t, clone, "--project", "shop")
	var listed struct {
		Resumable []struct {
			SessionID string `json:"session_id"`
			Machine   string `json:"machine"`
		} `json:"resumable"`
	}
	must(t, json.Unmarshal(callTool(t, second, "get_workflows", map[string]any{}), &listed))
	testkit.Need(t, len(listed.Resumable) == 1, "%+v", listed)
	testkit.Equal(t, listed.Resumable[0].SessionID, id)
	testkit.Contains(t, listed.Resumable[0].Machine, ", in "+root)

	r := testkit.Get(second.CallTool(t.Context(), &mcp.CallToolParams{
		Name: "finished_step", Arguments: map[string]any{"outputs": map[string]any{}},
	})).Must(t)
	testkit.ContainsAll(t, resultText(r),
		[]string{"- " + id + ": one/w, at step 'a'", ", in " + root + ", goal: Close it"})
}
