"""An agent of smolagents whose executor_type is "e2b": prints what its steps gave, as JSON."""

import json

from smolagents import ChatMessage, CodeAgent, MessageRole, Model, tool

STEPS = [
    "x = double(start)\nprint('x is', x)\nx + 2",
    "1 / 0",
    "final_answer({'x': x, 'pair': (x, None)})",
]


class Scripted(Model):
    """Says these programs, one after the other."""

    def generate(self, messages, **_):
        text = "Thought: go on.\n<code>\n%s\n</code>" % STEPS.pop(0)
        return ChatMessage(role=MessageRole.ASSISTANT, content=text)


@tool
def double(n: int) -> int:
    """Doubles a number.

    Args:
        n: The number.
    """
    return 2 * n


with CodeAgent(tools=[double], model=Scripted(), executor_type="e2b", verbosity_level=-1) as agent:
    answer = agent.run("Double it.", additional_args={"start": 20})
    steps = [step for step in agent.memory.steps if hasattr(step, "observations")]
    told = {
        "answer": answer,
        "steps": [[step.observations, step.error and "ZeroDivisionError" in step.error.message] for step in steps],
    }
print(json.dumps(told))
