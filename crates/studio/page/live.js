// The studio's own page: events of the page itself if it was saved, and of the server otherwise.
import { byId } from './common.js';
import { follow, mount, receive } from './studio.js';

const saved = byId('events').textContent.trim();
if (saved) {
  document.body.classList.add('saved');
  byId('state').textContent = 'A saved run';
  mount(document, null);
  receive(JSON.parse(saved));
} else {
  const events = async after => {
    const answer = await fetch('events?after=' + after);
    if (!answer.ok) throw new Error(answer.status);
    return answer.json();
  };
  mount(document, { events, ask: async what => (await fetch(what, { method: 'POST' })).ok });
  follow();
}
