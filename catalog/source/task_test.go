package source

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

// What a task says becomes what a run is; an answer of a kind that is not known is never an empty success.
func TestAnswersThatAreTasks(t *testing.T) {
	for text, want := range map[string]string{
		`{"resultType":"task","taskId":"x","status":"working","statusMessage":"half","pollIntervalMs":5000}`:                                                        "task:x running half 5s",
		`{"resultType":"task","taskId":"x","status":"working","pollIntervalMs":9e9}`:                                                                                "task:x running 30s",
		`{"resultType":"complete","taskId":"x","status":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"Which city?"}}}}`: "task:x running it waits for an answer of a person: Which city? Which city? 0s",
		`{"resultType":"complete","taskId":"x","status":"completed","result":{"content":[{"type":"text","text":"{\"a\":1}"}]}}`:                                     `task:x completed {"a":1} 0s`,
		`{"resultType":"complete","taskId":"x","status":"completed","result":{"structuredContent":{"a":12345678901234567890},"content":[]}}`:                        `task:x completed {"a":12345678901234567890} 0s`,
		`{"resultType":"complete","taskId":"x","status":"completed","result":{"isError":true,"content":[{"type":"text","text":"no"}]}}`:                             `task:x failed no "no" 0s`,
		`{"resultType":"complete","taskId":"x","status":"failed","error":{"code":-32603,"message":"broke"}}`:                                                        "task:x failed broke 0s",
		`{"resultType":"complete","taskId":"x","status":"cancelled","statusMessage":"by you"}`:                                                                      "task:x cancelled by you by you 0s",
		`{"resultType":"complete","taskId":"x","status":"completed","result":{"resultType":"task","taskId":"y","status":"working"}}`:                                "the result of its task is not that of a tool",
		`{"resultType":"task","status":"working"}`:                                  "fault: it is a task without an id, or is not written as one",
		`{"resultType":"task","taskId":5,"status":"working"}`:                       "fault: it is a task without an id, or is not written as one",
		`{"resultType":"later","content":[]}`:                                       `fault: it is of the kind "later", which this server does not know`,
		`{"resultType":"input_required","inputRequests":{}}`:                        `fault: it is of the kind "input_required", which this server does not know`,
		`{"taskId":"of the workflow's own","content":[{"type":"text","text":"1"}]}`: "no task",
		`{"content":[]}`: "no task",
	} {
		var r reply
		testkit.Must(t, json.Unmarshal([]byte(text), &r))
		got := "no task"
		if r.fault != "" {
			got = "fault: " + r.fault
		} else if r.task != nil {
			a, err := r.task.answer()
			if err != nil {
				got = err.Error()
			} else {
				p := cmp.Or(a.Progress, &Progress{})
				parts := []string{a.ExecutionID, string(a.State), p.Message, p.Asks, a.Error, string(a.Output), fmt.Sprint(a.Pause.Round(time.Second))}
				got = strings.Join(strings.Fields(strings.Join(parts, " ")), " ")
			}
		}
		testkit.Equal(t, got, want, "%s", text)
	}
}
