"""A model that uses the tools: the loop of `ask`, its sessions, and the model providers.

    loop          asks the model, runs its tool calls and returns the results, until there is an answer
    messages      provider-independent messages and tools, and OneTool's own messages to a model
    events        the events of a question, in order
    errors        the errors that prevent an answer
    prompts       builds the prompt of each step
    model_client  sends prompts and reads replies, streamed or whole
    endpoint      the URL of a provider, and errors from its use
    model_choice  chooses a provider and model if none is configured
    providers/    adapters of the providers' APIs
    sessions/     conversations, stored in the database

This package doesn't depend on the app, which passes tools, an HTTP client and settings. No provider library is used.
"""
