//go:build interop

package interop

// applying are the scenarios of the suite that a server like this one has to pass in
// every protocol version that the suite has them for, and how many versions those
// are; every check in them has to be passed but for those of beyond.
var applying = map[string]int{
	"server-initialize":           2,
	"server-session-lifecycle":    2,
	"server-stateless":            1,
	"ping":                        2,
	"tools-list":                  3,
	"prompts-list":                3,
	"resources-list":              3,
	"json-schema-2020-12":         2,
	"server-sse-multiple-streams": 2,
	"dns-rebinding-protection":    2,
	"caching":                     1,
	"http-header-validation":      1,
	"input-required-result-unsupported-methods": 1,
	"input-required-result-validate-input":      1,
}

// beyond are checks of applying scenarios that ask for what the server does not
// have, and why. Each must be needed: one that is passed after all is to be taken out.
var beyond = map[string]string{
	"sep-2575-server-rejects-undeclared-capability":              "the server asks its clients for nothing, so it needs no capability of theirs",
	"sep-2575-missing-capability-http-400":                       "the same",
	"sep-2575-http-server-no-independent-requests-on-stream":     "there is no tool that would ask the user",
	"sep-2575-server-no-log-without-loglevel":                    "there is no logging: what happened is in the server's log",
	"sep-2575-server-sends-prompts-list-changed-on-subscription": "there is no tool that changes the prompts, as a server made for the suite has",
}

// Why scenarios do not apply.
const (
	testTool     = "it calls a tool that only a server made for the suite has"
	testPrompt   = "it gets a prompt that only a server made for the suite has"
	testResource = "it reads a resource that only a server made for the suite has"
	noSkills     = "it is of an extension that the server does not declare: skills"
	noTasks      = "it is of an extension that the server does not declare: tasks"
	noQuestions  = "the server asks its clients for nothing, and the scenario calls a tool that would"
)

// others are the scenarios that do not apply, each with the reason.
var others = map[string]string{
	"logging-set-level":                             "there is no logging, and none is declared",
	"completion-complete":                           "there are no completions, and none are declared",
	"tools-call-simple-text":                        testTool,
	"tools-call-image":                              testTool,
	"tools-call-audio":                              testTool,
	"tools-call-embedded-resource":                  testTool,
	"tools-call-mixed-content":                      testTool,
	"tools-call-with-logging":                       testTool,
	"tools-call-error":                              testTool,
	"tools-call-with-progress":                      testTool,
	"tools-call-sampling":                           testTool,
	"tools-call-elicitation":                        testTool,
	"server-sse-polling":                            "streams are not resumed: a lost call is called again, and gets the reply that was kept",
	"elicitation-sep1034-defaults":                  noQuestions,
	"elicitation-sep1330-enums":                     noQuestions,
	"resources-read-text":                           testResource,
	"resources-read-binary":                         testResource,
	"resources-templates-read":                      testResource,
	"resources-subscribe":                           testResource,
	"resources-unsubscribe":                         testResource,
	"sep-2164-resource-not-found":                   testResource,
	"sep-2640-skills-directory":                     noSkills,
	"sep-2640-skills-enumeration":                   noSkills,
	"sep-2640-skills-manifest":                      noSkills,
	"prompts-get-simple":                            testPrompt,
	"prompts-get-with-args":                         testPrompt,
	"prompts-get-embedded-resource":                 testPrompt,
	"prompts-get-with-image":                        testPrompt,
	"http-custom-header-server-validation":          "no tool asks for headers; where the schema of a source does, that is taken out",
	"tasks-lifecycle":                               noTasks,
	"tasks-capability-negotiation":                  noTasks,
	"tasks-wire-fields":                             noTasks,
	"tasks-request-state-removal":                   noTasks,
	"tasks-mrtr-input":                              noTasks,
	"tasks-request-headers":                         noTasks,
	"tasks-dispatch-and-envelope":                   noTasks,
	"tasks-status-notifications":                    noTasks,
	"tasks-required-task-error":                     noTasks,
	"tasks-mrtr-composition":                        noTasks,
	"input-required-result-basic-elicitation":       noQuestions,
	"input-required-result-basic-sampling":          noQuestions,
	"input-required-result-basic-list-roots":        noQuestions,
	"input-required-result-request-state":           noQuestions,
	"input-required-result-multiple-input-requests": noQuestions,
	"input-required-result-multi-round":             noQuestions,
	"input-required-result-missing-input-response":  noQuestions,
	"input-required-result-non-tool-request":        testPrompt,
	"input-required-result-result-type":             noQuestions,
	"input-required-result-tampered-state":          noQuestions,
	"input-required-result-capability-check":        noQuestions,
	"input-required-result-ignore-extra-params":     noQuestions,
}
