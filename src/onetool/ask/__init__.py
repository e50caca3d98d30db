"""A model with these tools: the loop of `ask`, its sessions, and the providers of models.

    messages    what is said between a person, a model and tools, in one form; toolset: the tools that a model is shown
    events      what happens while a question is being answered, for whoever watches; errors: why there is no answer
    providers/  each provider's form of all that, and back
    talking     sends a prompt to a provider, and reads what comes back; place: where that is, lines: how it is framed,
                troubles: what went wrong on the way, in words
    choosing    which provider and model, where nobody said it
    sessions/   what was said, kept in files
    window      as much of it as a model can take; prompts: what it is given at each step
    words       what we say to a model ourselves, and the marks around data; fences: texts that keep to their place
    loop        ask the model, run what it calls (calls), give it the results, until there is an answer

Nothing here knows the app: it is given tools, a client and settings. Nobody else's library is used to talk to a model.
"""
