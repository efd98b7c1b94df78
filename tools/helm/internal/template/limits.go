package template

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/template"
	"text/template/parse"
	"time"
)

// tick is a function that every body of the template calls first, so that a loop without output ends in time too.
const tick = "chandlerTick"

type limits struct {
	timeout time.Duration
	output  int
}

// run is one evaluation: the writer of its output and the judge of its time.
type run struct {
	ctx      context.Context
	deadline time.Time
	limits   limits
	out      strings.Builder
}

func (r *run) Write(text []byte) (int, error) {
	if len(text) == 0 {
		return 0, nil
	}
	if r.out.Len()+len(text) > r.limits.output {
		return 0, fmt.Errorf("the output is larger than %d bytes", r.limits.output)
	}
	if err := r.check(); err != nil {
		return 0, err
	}
	return r.out.Write(text)
}

func (r *run) tick() (string, error) { return "", r.check() }

func (r *run) check() error {
	if time.Now().After(r.deadline) {
		return fmt.Errorf("the template took longer than %s", r.limits.timeout)
	}
	return r.ctx.Err()
}

// insertTicks puts a call of tick before the content of every list: the template itself, every branch, every loop.
func insertTicks(tree *parse.Tree) {
	insertInto(tree.Root, tree)
}

func insertInto(list *parse.ListNode, tree *parse.Tree) {
	if list == nil {
		return
	}
	for _, node := range list.Nodes {
		switch node := node.(type) {
		case *parse.IfNode:
			insertInto(node.List, tree)
			insertInto(node.ElseList, tree)
		case *parse.RangeNode:
			insertInto(node.List, tree)
			insertInto(node.ElseList, tree)
		case *parse.WithNode:
			insertInto(node.List, tree)
			insertInto(node.ElseList, tree)
		}
	}
	call := parse.NewIdentifier(tick).SetTree(tree).SetPos(list.Pos)
	list.Nodes = append([]parse.Node{&parse.ActionNode{
		NodeType: parse.NodeAction,
		Pos:      list.Pos,
		Pipe: &parse.PipeNode{
			NodeType: parse.NodePipe,
			Pos:      list.Pos,
			Cmds:     []*parse.CommandNode{{NodeType: parse.NodeCommand, Pos: list.Pos, Args: []parse.Node{call}}},
		},
	}}, list.Nodes...)
}

var errNotRunning = errors.New("the template is not being evaluated")

func placeholders() template.FuncMap {
	return template.FuncMap{tick: func() (string, error) { return "", errNotRunning }}
}
